"""Commands about the model."""

from pathlib import Path

from rich.text import Text

from shepherd.cli.repl.clean import one_line
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.view import two_columns
from shepherd.errors import ShepherdError

BUILT_IN = "pup"
MAX_LISTED = 100


def model_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    model = _Model(context)
    return [
        Command(
            "model", "[NAME]", "the model; with a name, switch to it", model.model, model.names
        ),
        Command("provider", "", "where models come from", model.provider),
    ]


class _Model:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    @property
    def _directory(self) -> Path:
        return Path(self._context.assembly.config.llamacpp.models_dir).expanduser()

    def names(self) -> list[str]:
        """The names that `/model` completes: the built-in model and the local files."""
        return [BUILT_IN, *local_models(self._directory)]

    async def model(self, argument: str) -> None:
        assembly, status = self._context.assembly, self._context.status
        if not argument:
            size = f", {status.context_size:,} tokens of context" if status.context_size else ""
            others = ", ".join(self.names())
            self._context.say(
                Text(one_line(f"{assembly.model_name}{size}", 400)),
                Text(one_line(f"/model NAME switches; there are: {others}", 400), style="quiet"),
            )
            return
        self._context.renderer.activity.start(f"loading {one_line(argument, 80)}")
        status.state = "switching"
        try:
            backend = await assembly.switch_model(argument)
        except ShepherdError as error:
            self._context.renderer.error(str(error))
            self._context.renderer.notice(f"going on with {assembly.config.model.name}")
        else:
            await status.loaded(backend, assembly.session)
            note = "; the conversation is read again" if assembly.session.messages else ""
            self._context.say(Text(one_line(f"Now talking to {backend.info.id}{note}.", 400)))
        finally:
            status.state = ""
            status.model = assembly.model_name
            self._context.renderer.activity.stop()

    async def provider(self, argument: str) -> None:
        local = local_models(self._directory)
        found = ", ".join(local) if local else "no .gguf files yet"
        rows = [
            ("built-in", f"{BUILT_IN}: small, offline, always there"),
            ("llama.cpp", f"{self._directory}: {found}"),
            ("any file", "/model /path/to/model.gguf"),
        ]
        self._context.say(
            two_columns((name, one_line(text, 2000)) for name, text in rows),
            Text("Models run in this process; remote providers are not there yet.", style="quiet"),
        )


def local_models(directory: Path) -> list[str]:
    """Names of the model files below `directory`, sorted."""
    try:
        files = [f for pattern in ("*.gguf", "*/*.gguf") for f in directory.glob(pattern)]
    except OSError:
        return []
    names = (str(f.relative_to(directory)) for f in files[:MAX_LISTED])
    return sorted(n for n in names if n.isprintable())

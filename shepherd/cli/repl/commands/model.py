"""Commands about the model."""

from pathlib import Path

from rich.text import Text

from shepherd.cli.repl.clean import one_line
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.switch import switch

BUILT_IN = "pup"
MAX_LISTED = 100


def model_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    model = _Model(context)
    return [
        Command(
            "model", "[NAME]", "the model; with a name, switch to it", model.model, model.names
        ),
    ]


class _Model:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def names(self) -> list[str]:
        """The names that `/model` completes: the built-in model and the local files."""
        directory = Path(self._context.assembly.config.llamacpp.models_dir).expanduser()
        return [BUILT_IN, *local_models(directory)]

    async def model(self, argument: str) -> None:
        assembly, status = self._context.assembly, self._context.status
        if argument:
            await switch(self._context, argument, lambda: assembly.switch_model(argument))
            return
        size = f", {status.context_size:,} tokens of context" if status.context_size else ""
        provider = assembly.provider
        where = f" of the provider {provider}" if provider else ""
        others = f"/model NAME switches; local ones: {', '.join(self.names())}"
        more = f"; any other name is one{where}" if provider else ""
        self._context.say(
            Text(one_line(f"{assembly.model_name}{where}{size}", 400)),
            Text(one_line(others + more, 400), style="quiet"),
        )


def local_models(directory: Path) -> list[str]:
    """Names of the model files below `directory`, sorted."""
    try:
        files = [f for pattern in ("*.gguf", "*/*.gguf") for f in directory.glob(pattern)]
    except OSError:
        return []
    names = (str(f.relative_to(directory)) for f in files[:MAX_LISTED])
    return sorted(n for n in names if n.isprintable())

"""Commands about the model."""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from pathlib import Path

from shepherd.backends.base import Backend
from shepherd.catalog.model_files import models_in
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.terminal.sanitize import one_line
from shepherd.conversation.commands.command import Lines, Note
from shepherd.errors import ShepherdError

BUILT_IN = "pup"
MAX_LISTED = 100
MAX_LINE = 400


async def switch(
    context: CommandContext, name: str, opening: Callable[[], Awaitable[Backend]]
) -> bool:
    """Show the progress of `opening`, which continues the conversation with the model `name`.

    Returns whether it succeeds; otherwise the previous model stays.
    """
    conversation, status, renderer = context.conversation, context.status, context.renderer
    renderer.activity.start(f"loading {one_line(name, 80)}")
    status.state = "switching"
    try:
        backend = await opening()
    except ShepherdError as error:
        renderer.error(str(error))
        renderer.notice(f"going on with {conversation.slot.label}")
        return False
    else:
        await status.loaded(backend, conversation.session)
        warning = backend.take_warning()
        if warning:
            renderer.notice(warning, "warn")
        note = "; the conversation is read again" if conversation.session.messages else ""
        context.show([one_line(f"Now talking to {_answering(context, backend)}{note}.", MAX_LINE)])
        return True
    finally:
        status.state = ""
        status.model = conversation.slot.model_name
        renderer.activity.stop()


def _answering(context: CommandContext, backend: Backend) -> str:
    """The model and its provider, and the chosen one if another answers."""
    conversation = context.conversation
    where = f" of the provider {conversation.slot.provider}" if conversation.slot.provider else ""
    chosen = conversation.config.model.provider.partition("/")[0]
    instead = f" in place of {chosen}" if conversation.slot.fell_back else ""
    return f"{backend.info.id}{where}{instead}"


class ModelCommands:
    """The command `/model`."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def commands(self) -> list[Command[str]]:
        """The command."""
        usage, summary = "[NAME]", "the model; with a name, switch to it"
        return [Command("model", usage, summary, self._model, self._names)]

    def _names(self) -> list[str]:
        """The names that `/model` completes: the built-in model and the local files."""
        directory = Path(self._context.conversation.config.llamacpp.models_dir).expanduser()
        return [BUILT_IN, *local_models(directory)]

    async def _model(self, argument: str) -> Lines | None:
        conversation, status = self._context.conversation, self._context.status
        if argument:
            opening = partial(conversation.slot.switch_model, argument, conversation.cwd)
            await switch(self._context, argument, opening)
            return None
        size = f", {status.context_size:,} tokens of context" if status.context_size else ""
        provider = conversation.slot.provider
        where = f" of the provider {provider}" if provider else ""
        others = f"/model NAME switches; local ones: {', '.join(self._names())}"
        more = f"; any other name is one{where}" if provider else ""
        return [
            one_line(f"{conversation.slot.model_name}{where}{size}", MAX_LINE),
            Note(one_line(others + more, MAX_LINE)),
        ]


def local_models(directory: Path) -> list[str]:
    """Names of the models in `directory`, sorted."""
    names = (str(model.path.relative_to(directory)) for model in models_in(directory))
    return sorted(islice((name for name in names if name.isprintable()), MAX_LISTED))

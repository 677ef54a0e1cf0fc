"""Going on with another model, whatever it was chosen by."""

from collections.abc import Awaitable, Callable

from rich.text import Text

from shepherd.backends.base import Backend
from shepherd.cli.repl.clean import one_line
from shepherd.cli.repl.commands.base import CommandContext
from shepherd.errors import ShepherdError


async def switch(
    context: CommandContext, name: str, opening: Callable[[], Awaitable[Backend]]
) -> bool:
    """Show what `opening` does, which goes on with the conversation at the model `name`.

    Returns whether it does; if not, the model before goes on.
    """
    assembly, status, renderer = context.assembly, context.status, context.renderer
    renderer.activity.start(f"loading {one_line(name, 80)}")
    status.state = "switching"
    try:
        backend = await opening()
    except ShepherdError as error:
        renderer.error(str(error))
        renderer.notice(f"going on with {assembly.label}")
        return False
    else:
        await status.loaded(backend, assembly.session)
        warning = backend.take_warning()
        if warning:
            renderer.notice(warning, "warn")
        note = "; the conversation is read again" if assembly.session.messages else ""
        context.say(Text(one_line(f"Now talking to {_answering(context, backend)}{note}.", 400)))
        return True
    finally:
        status.state = ""
        status.model = assembly.model_name
        renderer.activity.stop()


def _answering(context: CommandContext, backend: Backend) -> str:
    """The model, the provider that has it, and which one was meant if another answers."""
    assembly = context.assembly
    where = f" of the provider {assembly.provider}" if assembly.provider else ""
    meant = assembly.config.model.provider.partition("/")[0]
    instead = f" in place of {meant}" if assembly.fell_back else ""
    return f"{backend.info.id}{where}{instead}"

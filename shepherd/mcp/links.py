"""Makes the connections of servers; imports the SDK."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from shepherd.mcp.connection import Connection, Host, Link, OtherTransportError
from shepherd.mcp.questions import Questions
from shepherd.mcp.sampling import Sampler
from shepherd.mcp.settings.definition import Server
from shepherd.mcp.stdio.launcher import Launcher
from shepherd.mcp.stdio.transport import Wire, silence_sdk
from shepherd.tools.invisible import reveal
from shepherd.tools.text import plain_text

Warn = Callable[[str], None]


def new_connection(
    server: Server,
    launcher: Launcher,
    warn: Warn,
    changed: Callable[[], None],
    sampler: Callable[[], Sampler | None],
) -> Connection:
    """A connection to a server, which is not started yet."""
    silence_sdk()
    link = partial(_link, server, launcher, warn, _Remote(server.definition.type == "sse"))
    questions = Questions(server.name, sampler)
    secrets = partial(launcher.secrets.values, server)
    roots = (launcher.root.as_uri(),)
    return Connection(server, link, Host(warn, changed, questions, secrets, roots))


@dataclass(slots=True)
class _Remote:
    """The transport of a server that speaks HTTP: the older HTTP+SSE, or streamable HTTP."""

    sse: bool


@asynccontextmanager
async def _link(
    server: Server, launcher: Launcher, warn: Warn, remote: _Remote
) -> AsyncGenerator[Link]:
    if server.definition.url:
        from shepherd.mcp.http.connect import http_link  # imports an HTTP client
        from shepherd.mcp.http.login import Login

        login = Login(server, launcher.secrets)
        try:
            async with http_link(server, launcher.secrets, login, sse=remote.sse) as link:
                yield link
        except OtherTransportError:
            remote.sse = True
            raise
        return
    async with launcher.started(server, warn) as process:
        wire = Wire(process, warn)

        def problem() -> str:
            last = reveal(plain_text(process.last_words))[:200]
            words = f"its last words: {last}" if last else ""
            return "; ".join(filter(None, [wire.problem, words])) or "its process has ended"

        yield Link(wire.streams(), wire.closed, problem)

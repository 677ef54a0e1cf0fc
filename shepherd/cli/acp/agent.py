"""The requests of an editor."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from acp import PROTOCOL_VERSION, RequestError, schema
from acp.interfaces import Client
from msgspec import Struct, field

from shepherd import errors, messages
from shepherd.cli.acp import opening
from shepherd.cli.acp.choices import MODE, choose, mode_state
from shepherd.cli.acp.session import Block, EditorSession
from shepherd.cli.acp.updates import INTERNAL_ERROR, SessionUpdates, invalid
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.build import open_borrowing
from shepherd.conversation.commands.present import set_mode
from shepherd.conversation.session_start import SessionStart
from shepherd.transcript import SessionStore
from shepherd.version import __version__

LOADING_SECONDS = 10.0
"""The time in which the model must load for `initialize` to know whether it sees images."""

Servers = list[opening.EditorServer] | None
P = ParamSpec("P")
T = TypeVar("T")


def reported(work: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Turn Shepherd's errors into answers with their sentence, without a traceback."""

    @wraps(work)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await work(*args, **kwargs)
        except errors.ShepherdError as error:
            kind = {"type": type(error).__name__}
            raise RequestError(INTERNAL_ERROR, str(error), kind) from error
        except OSError as error:
            raise RequestError(INTERNAL_ERROR, str(error)) from error

    return run


class EditorAgent(Struct):
    """Answers the requests of one editor; its methods have the names that the package calls.

    `settings` reads the settings that apply in a directory; `post` sends a message.
    """

    config: Config
    settings: Callable[[Path], Config]
    models: opening.SharedModels
    post: Callable[[messages.JsonObject], None]
    client: Client | None = None
    sessions: dict[str, EditorSession] = field(default_factory=dict[str, EditorSession])
    _capabilities: schema.ClientCapabilities | None = None

    def on_connect(self, conn: Client) -> None:
        """Keep the connection to the editor."""
        self.client = conn

    @reported
    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **_: Any,
    ) -> schema.InitializeResponse:
        """Tell what Shepherd can do here; the model begins to load."""
        self._capabilities = client_capabilities
        saves = self.config.terminal.save_sessions
        sees = await opening.can_see(self.models, self.config, LOADING_SECONDS)
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(
                name="shepherd", title="Shepherd", version=__version__
            ),
            agent_capabilities=schema.AgentCapabilities(
                load_session=saves,
                prompt_capabilities=schema.PromptCapabilities(
                    image=sees, audio=False, embedded_context=True
                ),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities() if saves else None,
                    resume=schema.SessionResumeCapabilities() if saves else None,
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    @reported
    async def new_session(
        self, cwd: str, mcp_servers: Servers = None, **_: Any
    ) -> schema.NewSessionResponse:
        """Begin a conversation in a directory."""
        session = await self._open(cwd, SessionStart(), mcp_servers)
        session.begin_soon()
        return schema.NewSessionResponse(
            session_id=session.updates.session_id,
            modes=mode_state(session.conversation),
            config_options=session.choices,
        )

    @reported
    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Servers = None, **_: Any
    ) -> schema.LoadSessionResponse:
        """Continue a saved conversation; all its messages are sent first."""
        session = await self._continue(cwd, session_id, mcp_servers)
        opening.replay(session.conversation.session.messages, session.updates)
        session.begin()
        modes = mode_state(session.conversation)
        return schema.LoadSessionResponse(modes=modes, config_options=session.choices)

    @reported
    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: Servers = None, **_: Any
    ) -> schema.ResumeSessionResponse:
        """Continue a saved conversation that the editor shows already."""
        session = await self._continue(cwd, session_id, mcp_servers)
        session.begin_soon()
        modes = mode_state(session.conversation)
        return schema.ResumeSessionResponse(modes=modes, config_options=session.choices)

    @reported
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        """The saved conversations, the newest first."""
        store = SessionStore(Paths.from_env(os.environ).sessions)
        return await asyncio.to_thread(opening.list_page, store, cwd, cursor)

    @reported
    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        """End a conversation; it stays saved."""
        session = self._session(session_id)
        del self.sessions[session_id]
        await session.aclose()
        return schema.CloseSessionResponse()

    @reported
    async def prompt(self, prompt: list[Block], session_id: str, **_: Any) -> schema.PromptResponse:
        """Answer a prompt."""
        return await self._session(session_id).prompt(prompt)

    @reported
    async def set_session_mode(
        self, mode_id: str, session_id: str, **_: Any
    ) -> schema.SetSessionModeResponse:
        """Change the approval mode of a conversation."""
        await self.set_config_option(config_id=MODE, session_id=session_id, value=mode_id)
        return schema.SetSessionModeResponse()

    @reported
    async def set_config_option(
        self, config_id: str, session_id: str, value: object, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        """Change the mode, the model or its effort."""
        session = self._session(session_id)
        problem = await choose(session.conversation, config_id, value)
        session.tell_choices()
        if problem:
            session.updates.notice(problem)
        return schema.SetSessionConfigOptionResponse(config_options=session.choices)

    @reported
    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the turn of a conversation."""
        if session_id in self.sessions:
            self.sessions[session_id].cancel()

    async def aclose(self) -> None:
        """End all conversations, and close the models."""
        sessions = list(self.sessions.values())
        self.sessions.clear()
        for session in sessions:
            await session.aclose()
        await self.models.aclose()

    def _session(self, id: str) -> EditorSession:
        """The open session with this id; raises RequestError."""
        session = self.sessions.get(id)
        if session is None:
            raise invalid(f"There is no open session {id}; begin one with session/new.")
        return session

    async def _continue(self, cwd: str, id: str, mcp_servers: Servers) -> EditorSession:
        """The session with this id, opened unless it is open; raises SessionError."""
        if id in self.sessions:
            if self.sessions[id].is_busy:
                raise errors.SessionError(f"The session {id} answers a prompt; cancel it first.")
            return self.sessions[id]
        store = SessionStore(Paths.from_env(os.environ).sessions)
        if not id or store.find(id) != id:  # `find` also takes the beginning of an id
            raise errors.SessionError(f"No session {id}; session/list names all.")
        return await self._open(cwd, SessionStart(id=id), mcp_servers)

    def _directory_and_settings(self, cwd: str) -> tuple[Path, Config]:
        """The directory of a session and its settings; raises ConfigError."""
        directory = Path(cwd)
        # a path with NUL makes the system's calls fail with another error
        if "\0" in cwd or not directory.is_absolute() or not directory.is_dir():
            raise errors.ConfigError(f"{cwd!r} is not the absolute path of a directory.")
        return directory, self.settings(directory)

    async def _open(self, cwd: str, start: SessionStart, mcp_servers: Servers) -> EditorSession:
        """A new session in the directory `cwd`, with the editor's servers; raises ShepherdError."""
        if self.client is None:
            raise errors.ConfigError("The editor is not connected.")
        directory, config = await asyncio.to_thread(self._directory_and_settings, cwd)
        models = self.models
        # an error before `pop_all` closes what was opened; afterwards the session does
        async with AsyncExitStack() as resources:
            opened = open_borrowing(
                models.backend, config, os.environ, directory, start, models.providers
            )
            conversation = await resources.enter_async_context(opened)
            # it finds out whether a sandbox holds, without which `auto` asks
            await set_mode(conversation, conversation.policy.mode)
            servers, problems = opening.convert_servers(mcp_servers or [])
            for problem in problems:
                conversation.notices.tell(problem)
            conversation.add_servers(servers)
            conversation.begin()
            updates = SessionUpdates(conversation.session.id, directory, self.post)
            session = EditorSession(
                conversation, resources.pop_all(), self.client, updates, self._capabilities
            )
        self.sessions[updates.session_id] = session
        return session

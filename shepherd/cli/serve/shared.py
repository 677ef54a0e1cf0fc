"""Starts the server of one conversation that many clients share."""

import hashlib
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from shepherd.backends.base import ModelInfo
from shepherd.cli.commands.output import warn
from shepherd.cli.serve.database import configured_database, server_keys, session_store
from shepherd.cli.serve.http import refusal_of_flags, server_settings
from shepherd.config.files import write_private
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.build import open_conversation
from shepherd.conversation.commands.table import named_command, output_of
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.conversation.shared.approvals import ClientApprover
from shepherd.conversation.shared.session import SessionActions, SharedSession
from shepherd.errors import SessionError
from shepherd.server.access.audit import AuditedTools, AuditLog
from shepherd.server.access.keys import Keys
from shepherd.server.app import MIB, create_conversation_app
from shepherd.server.operation.lifecycle import Lifecycle
from shepherd.server.pool.pool import UnloadedBackend
from shepherd.server.record import CallOrigin
from shepherd.server.run import Host, Service, serve_service
from shepherd.server.settings import ServerSettings
from shepherd.tools.permissions.approval import Approver
from shepherd.transcript import SessionStore
from shepherd.turn import ToolExecutor

OPEN_WARNING = (
    "Anyone who can reach this address can use the agent and approve its tool calls, because no "
    "key is needed; use --auth-mode json"
)


async def serve_conversation(
    config: Config, cwd: Path, start: SessionStart, providers: ProviderBook, *, insecure: bool
) -> int:
    """Serve the conversation until a signal ends it.

    Continues the one served last in `cwd` if `start` names none. Raises ConfigError, SessionError,
    and errors from loading the backend.
    """
    paths = Paths.from_env(os.environ)
    settings = server_settings(config, insecure=insecure)
    database = configured_database(config, os.environ)
    settings.postgres = database
    keys = server_keys(config, database, paths)
    sessions = session_store(database, paths)
    if not (start.id or start.latest):
        start = SessionStart(id=last_served(sessions, paths, cwd), or_new=True)

    opened = open_conversation(config, os.environ, cwd, replace(start, store=sessions), providers)
    async with opened as conversation:
        conversation.notices.listen(warn)
        open_service = partial(_open_service, conversation, paths, settings, keys)
        with refusal_of_flags(config):
            await serve_service(open_service, settings, keys, OPEN_WARNING)
    return 0


@asynccontextmanager
async def _open_service(
    conversation: Conversation,
    paths: Paths,
    settings: ServerSettings,
    keys: Keys | None,
    host: Host,
) -> AsyncGenerator[Service]:
    """The application over the conversation, whose model is loaded once the port is open."""
    audit = AuditLog(paths.audit_file, settings.audit_mib * MIB, settings.audit_required)
    actions = audited_actions(conversation, audit)
    unloaded = UnloadedBackend(ModelInfo(conversation.slot.model_name, "", 0))
    shared = SharedSession(conversation, actions, unloaded)

    def notice(text: str) -> None:
        warn(text)
        shared.publisher.notice(text)

    conversation.notices.listen(notice)
    async with AsyncExitStack() as opened:

        async def load() -> str:
            shared.backend = await conversation.backend()
            if conversation.transcript is not None:  # what is not saved can't be continued
                served = _pointer(paths, conversation.cwd)
                line = f"{conversation.session.id}\n"
                write_private(
                    served, line + next((a for a in lifecycle.addresses if "://" in a), "")
                )
                opened.callback(write_private, served, line)
            await opened.enter_async_context(shared)
            return f"session {conversation.session.id} with {shared.backend.info.id}"

        lifecycle = Lifecycle(host.tell, database=settings.postgres, log=host.log)
        app = create_conversation_app(shared, settings, keys, audit, lifecycle, host.traces)
        yield Service(app, load, path="", drain=shared.drain)


def last_served(sessions: SessionStore, paths: Paths, cwd: Path) -> str:
    """The id of the session that was served last in `cwd`, "" if it does not exist any more."""
    try:
        saved = _pointer(paths, cwd).read_text(encoding="utf-8").partition("\n")[0]
        return sessions.find(saved) if saved else ""
    except (FileNotFoundError, SessionError):  # never served, without messages, or deleted
        return ""


def _pointer(paths: Paths, cwd: Path) -> Path:
    """The file with the session that was served last in `cwd`: its id, and its address if it is."""
    return paths.served / hashlib.sha256(os.fsencode(cwd)).hexdigest()[:32]


PATH = "/request"


def audited_actions(conversation: Conversation, audit: AuditLog) -> SessionActions:
    """The actions of a shared session over `conversation`."""

    def tool_runner(approver: Approver) -> ToolExecutor:
        origin = partial(_origin, conversation, approver)
        return AuditedTools(conversation.tool_runner(approver), audit, origin=origin)

    async def command(text: str) -> str:
        known, argument = named_command(text)
        return await output_of(known, conversation, argument)

    return SessionActions(tool_runner, command)


def _origin(conversation: Conversation, approver: Approver) -> CallOrigin:
    """The running request, for the audit."""
    model = conversation.slot.model_name
    request = approver.request if isinstance(approver, ClientApprover) else None
    if request is None:
        return CallOrigin(path=PATH, model=model)
    # A client is its key, a line break, and a secret of its own, which the audit must not have.
    # Without keys it is the secret alone, of which this leaves nothing.
    key = request.client.rpartition("\n")[0]
    return CallOrigin(request.id, PATH, key, model)

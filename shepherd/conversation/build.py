"""Builds one conversation from settings."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from shepherd.backends import opening
from shepherd.backends.base import Backend, Concurrency
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation import session_start
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.model_slot import BackendOpener, ModelSlot
from shepherd.conversation.toolbox import archive_of, build_workspace, offered_tools
from shepherd.memory.store import Place
from shepherd.tools.deferred import SearchResults
from shepherd.transcript import SessionStore

CONVERSATION = Concurrency(1, maximum=8)
"""One conversation, which may send parallel requests to its model."""


@asynccontextmanager
async def open_conversation(
    config: Config,
    env: Mapping[str, str],
    cwd: Path,
    start: session_start.SessionStart,
    providers: ProviderBook | None = None,
) -> AsyncGenerator[Conversation]:
    """The conversation that `start` names, closed at the end; raises SessionError, ConfigError."""
    providers = providers or ProviderBook(Paths.from_env(env), env)
    opener = backend_opener(providers)
    conversation = build_conversation(config, env, cwd, start, opener, providers)
    conversation.begin()
    try:
        yield conversation
    finally:
        await conversation.aclose()


def backend_opener(providers: ProviderBook, parallel: Concurrency = CONVERSATION) -> BackendOpener:
    """An opener for the backend of the settings; it serves `parallel` conversations."""

    async def open_backend(config: Config) -> Backend:
        return await opening.open_backend(config, parallel=parallel, providers=providers)

    return open_backend


def build_conversation(
    config: Config,
    env: Mapping[str, str],
    cwd: Path,
    start: session_start.SessionStart,
    open_backend: BackendOpener,
    providers: ProviderBook | None = None,
) -> Conversation:
    """`open_conversation` with another opener; the caller closes it."""
    providers = providers or ProviderBook(Paths.from_env(env), env)
    slot = partial(ModelSlot, config, open_backend, providers)
    return _build(config, env, cwd, start, providers, slot)


@asynccontextmanager
async def open_borrowing(
    lender: BackendOpener,
    config: Config,
    env: Mapping[str, str],
    cwd: Path,
    start: session_start.SessionStart,
    providers: ProviderBook,
) -> AsyncGenerator[Conversation]:
    """`open_conversation` over backends that other conversations use too; they stay open.

    `lender` returns the one for the settings. The caller calls `begin`, after it has added MCP
    servers of its own.
    """
    opener = backend_opener(providers)
    slot = partial(ModelSlot, config, opener, providers, lender=lender)
    conversation = _build(config, env, cwd, start, providers, slot)
    try:
        await conversation.backend()  # a model that can't be lent is an error here, not later
        yield conversation
    finally:
        await conversation.aclose()


def _build(
    config: Config,
    env: Mapping[str, str],
    cwd: Path,
    start: session_start.SessionStart,
    providers: ProviderBook,
    slot: Callable[[Conversation], ModelSlot],
) -> Conversation:
    """The conversation that `start` names, with the model that `slot` makes for it."""
    paths, notices = Paths.from_env(env), session_start.Notices()
    sessions = start.store or SessionStore(paths.sessions)
    session, transcript = session_start.begin_session(
        config, sessions, cwd, start, notices, paths.served
    )
    current = session_start.CurrentSession(session)
    workspace = build_workspace(config, paths, cwd, notices, current)
    for warning in (*config.warnings, *providers.warnings()):
        notices.tell(warning)
    session.archive = archive_of(session, workspace.memory, Place.of(cwd))
    # no model is loaded yet; the one that will answer may be offered others
    session.tools = offered_tools(workspace.registry, config, None)
    session.deferred = SearchResults(workspace.registry)
    return Conversation(workspace, slot, notices, current, transcript, sessions)


def unsaved(config: Config) -> Config:
    """The settings of a conversation that saves nothing: no transcript and no memory."""
    terminal = config.terminal.model_copy(update={"save_sessions": False})
    return config.model_copy(update={"terminal": terminal})

"""Puts one conversation together from settings."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from shepherd.backends.base import Backend, Concurrency
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.conversation import Conversation, Surroundings
from shepherd.conversation.model_slot import BackendOpener, ModelSlot
from shepherd.conversation.session_start import Notices, SessionStart, begin_session
from shepherd.conversation.toolbox import (
    add_memory_tools,
    archive_of,
    build_memory,
    build_policy,
    build_registry,
    build_sandbox,
    offered_tools,
)
from shepherd.memory import Place

CONVERSATION = Concurrency(1, maximum=8)
"""One conversation, which may ask its model something beside."""


@asynccontextmanager
async def open_conversation(
    config: Config,
    env: Mapping[str, str],
    cwd: Path,
    start: SessionStart,
    providers: ProviderBook | None = None,
) -> AsyncGenerator[Conversation]:
    """The conversation that `start` names, closed at the end; raises SessionError, ConfigError."""
    providers = providers or ProviderBook(Paths.from_env(env), env)
    opener = backend_opener(providers)
    conversation = build_conversation(config, env, cwd, start, opener, providers)
    try:
        yield conversation
    finally:
        await conversation.aclose()


def backend_opener(providers: ProviderBook, parallel: Concurrency = CONVERSATION) -> BackendOpener:
    """Opens the backend that settings name; `parallel` is how many conversations it serves."""

    async def open_backend(config: Config) -> Backend:
        from shepherd.backends import registry  # loads llama.cpp or an HTTP client

        return await registry.open_backend(config, parallel=parallel, providers=providers)

    return open_backend


def build_conversation(
    config: Config,
    env: Mapping[str, str],
    cwd: Path,
    start: SessionStart,
    open_backend: BackendOpener,
    providers: ProviderBook | None = None,
) -> Conversation:
    """`open_conversation` with another opener; the caller closes it."""
    paths, place, notices = Paths.from_env(env), Place.of(cwd), Notices()
    memory = build_memory(config, paths, notices)
    registry = build_registry(config)
    add_memory_tools(registry, config, memory, place)
    for warning in config.warnings:
        notices.tell(warning)
    session, transcript = begin_session(config, paths, cwd, start, notices)
    session.archive = archive_of(session, memory, place)
    session.tools = offered_tools(registry, config, None)
    session.sampling = config.sampling.to_sampling()
    session.thinking = config.model.thinking
    policy, sandbox = build_policy(config, paths, cwd), build_sandbox(config)
    surroundings = Surroundings(paths, cwd, policy, sandbox, registry, memory)
    slot = partial(ModelSlot, config, open_backend, providers or ProviderBook(paths, env))
    return Conversation(surroundings, slot, notices, session, transcript)

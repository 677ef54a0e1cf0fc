"""Conversations in the places of these tests, with a script as the model."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from shepherd.backends.base import Backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.load import load_config
from shepherd.config.settings import Config
from shepherd.conversation.build import build_conversation
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.events import ignore_events
from shepherd.turn import run_turn
from tests.knowledge.places import Places


@asynccontextmanager
async def conversing(
    places: Places, script: str = "text: yes", *, latest: bool = False, **flags: object
) -> AsyncGenerator[tuple[Conversation, list[str]]]:
    """A conversation whose model is loaded, and its notices."""
    env = {"HOME": str(places.home)}
    overrides = {key.replace("__", "."): value for key, value in flags.items()}
    config = load_config(places.cwd, env, overrides)

    async def opener(_config: Config) -> Backend:
        return ScriptedBackend(parse_script(script))

    start = SessionStart(latest=latest)
    conversation = build_conversation(config, env, places.cwd, start, opener)
    notices: list[str] = []
    conversation.notices.listen(notices.append)
    await conversation.backend()
    try:
        yield conversation, notices
    finally:
        await conversation.aclose()


async def ask(conversation: Conversation, text: str) -> None:
    """One turn in which every call that needs no approval runs."""
    backend = await conversation.backend()
    prompt, tools = await conversation.prompt(text), conversation.tool_runner()
    await run_turn(conversation.session, prompt, backend, tools, ignore_events)

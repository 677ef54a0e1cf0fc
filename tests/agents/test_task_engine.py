"""Sub-agents of the built-in model: they share the conversation's prefix and one batch."""

import json
from pathlib import Path

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.conversation.build import CONVERSATION
from shepherd.events import CallbackEvent, ignore_events
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.session import Session
from shepherd.turn import run_turn
from tests.agents.test_task import gather_team


async def test_four_sub_agents_read_the_conversations_beginning_only_once(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    settings = LlamaCppSection(context_size=2048, threads=1)
    backend = await LlamaCppBackend.load(
        builtin_model(), settings, Sampling(temperature=0.0), parallel=CONVERSATION
    )
    try:
        team = gather_team(tmp_path, "")
        team.model = backend
        team.conversation.system_message = "You are Shepherd. " + "Look before you answer. " * 40
        alone = Session(team.conversation.system_message, tools=team.conversation.tools)
        beginning = await backend.count_session_tokens(alone)
        tools = team.workshop.runner
        await run_turn(team.conversation, "hello", backend, tools, ignore_events)
        await team.delegate("hello", "who are you?", "thanks", "tell me a joke")
    finally:
        await backend.aclose()
    usage = [
        json.loads(content)
        for event, content, name, _ in team.events
        if event is CallbackEvent.STATS and name == "task"
    ]
    first = usage[:4]
    assert len(first) == 4
    for stats in first:
        assert stats["cached_tokens"] >= beginning - 8, "the template's seam is read again"
        assert stats["cached_tokens"] < stats["prompt_tokens"]

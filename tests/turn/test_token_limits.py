"""A turn that may generate so many tokens in all, or whose context may not be made free."""

import pytest

from shepherd.backends.base import Generation, Prefilled
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import ContextFullError
from shepherd.events import EventCallback, FinishReason, ignore_events
from shepherd.images import Image
from shepherd.messages import Message, Role, ToolCall
from shepherd.session import Session
from shepherd.tools.tool import ToolResult
from shepherd.turn import TurnLimits, run_turn
from tests.pictures import picture
from tests.turn.test_run_turn import Recorder, Tools, assert_consistent

THREE_ROUNDS = """
text: one two three four
call: look {"at": 1}
---
text: five six seven eight
call: look {"at": 2}
---
text: nine ten eleven twelve
"""
"""Four words in each round; the scripted backend counts a word as a token."""


class Watched(ScriptedBackend):
    """Remembers the limit of each generation; 0 means as many tokens as fit."""

    def __init__(self, script: str) -> None:
        super().__init__(parse_script(script))
        self.limits: list[int] = []

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        self.limits.append(max_tokens)
        return await super().generate_from_prefilled(prefilled, callback, max_tokens)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (TurnLimits(), [0, 0, 0]),
        (TurnLimits(max_tokens=7), [7, 7, 7]),
        (TurnLimits(total_tokens=100), [100, 96, 92]),
        (TurnLimits(total_tokens=100, max_tokens=94), [94, 94, 92]),
        (TurnLimits(total_tokens=9), [9, 5, 1]),
        (TurnLimits(total_tokens=8), [8, 4]),  # none is left, and a limit of 0 would be none
        (TurnLimits(total_tokens=6), [6, 2]),  # the second round is cut, so its call never comes
    ],
)
async def test_each_round_may_use_what_the_ones_before_left(
    limits: TurnLimits, expected: list[int]
) -> None:
    backend, session = Watched(THREE_ROUNDS), Session()
    outcome = await run_turn(session, "hello", backend, Tools(), Recorder(), limits)
    assert backend.limits == expected
    whole = len(expected) == 3 and expected[-1] != 1
    assert outcome.finish_reason is (FinishReason.STOP if whole else FinishReason.LENGTH)
    if limits.total_tokens:
        assert sum(s.completion_tokens for s in outcome.stats) <= limits.total_tokens
    assert_consistent(session)


@pytest.mark.parametrize("evicts", [True, False])
async def test_a_context_that_is_full_at_once_is_an_error(*, evicts: bool) -> None:
    session = Session()
    limits = TurnLimits(evicts=evicts)
    with pytest.raises(ContextFullError):
        await run_turn(session, "hello", Watched("full: 9"), Tools(), Recorder(), limits)


async def test_without_eviction_the_rounds_before_a_full_context_stand() -> None:
    session = Session()
    backend = Watched('text: Looking.\ncall: look {"at": 1}\n---\nfull: 9')
    limits = TurnLimits(evicts=False)
    outcome = await run_turn(session, "hello", backend, Tools(), Recorder(), limits)
    assert outcome.finish_reason is FinishReason.LENGTH
    assert [m.role for m in session.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert_consistent(session)


class Camera:
    """Gives each call a picture."""

    photo: Image = picture()

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        return ToolResult("Done.", images=(self.photo,))


@pytest.mark.parametrize("vision", [True, False])
async def test_a_result_keeps_its_image_only_for_a_model_that_can_see(
    *,
    vision: bool,
) -> None:
    session = Session()
    script = "call: look {}\n---\ntext: A cat."
    backend = Watched(f"vision: {'yes' if vision else 'no'}\n{script}")
    await run_turn(session, "hello", backend, Camera(), Recorder())
    (result,) = (m for m in session.messages if m.role is Role.TOOL)
    assert result.images == ((Camera.photo,) if vision else ())
    line = result.content != "Done."
    assert line is not vision, "a model that can't see reads that there was an image"
    assert session.messages[-1] == Message.assistant("A cat.")

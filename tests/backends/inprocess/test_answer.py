"""From what a model generated to the generation that the turn loop gets."""

import pytest

from shepherd.backends.base import Generation
from shepherd.backends.inprocess.answer import Answer, Finished, Text
from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.style import GENERIC
from shepherd.events import FinishReason, Stats
from tests.backends.llamacpp.support import LIST, Recorder

BROKEN = '<tool_call>{"name": "list_directory", "arguments": {"path": src}}</tool_call>'
GOOD = '<tool_call>{"name": "list_directory", "arguments": {"path": "src"}}</tool_call>'


def generated(text: str, reason: FinishReason = FinishReason.STOP) -> Generation:
    answer = Answer(OutputFilter(GENERIC, [LIST]), Recorder())
    answer.take([Text(text), Finished(reason, Stats(), ())])
    return answer.complete(Stats())


def test_a_broken_call_is_text_and_says_why() -> None:
    generation = generated(BROKEN)
    assert generation.message.content == BROKEN
    assert generation.message.tool_calls == ()
    assert generation.finish_reason is FinishReason.STOP
    assert "list_directory is not valid JSON" in generation.problems[0]


def test_a_good_call_has_no_problems() -> None:
    generation = generated(GOOD)
    assert generation.finish_reason is FinishReason.TOOL_CALLS
    assert generation.problems == ()


@pytest.mark.parametrize("end", range(1, len(GOOD) - len("}</tool_call>")))
def test_a_call_that_was_cut_is_never_run(end: int) -> None:
    generation = generated(GOOD[:end], FinishReason.LENGTH)
    assert generation.message.content == GOOD[:end]
    assert generation.message.tool_calls == ()
    assert generation.problems == ()

"""A stream in any pieces, and with garbage in it; see tests/backends/conformance for cuts."""

import codecs
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.api.answer import Answer, Reading
from shepherd.backends.api.framing import decoder_for
from shepherd.backends.api.stream import Framing
from shepherd.backends.base import Generation
from shepherd.errors import UnreachableError
from shepherd.events import FinishReason, Stats
from tests.backends.api.plain_adapter import PlainAdapter, PlainDecoder
from tests.backends.api.support import LIST, WRITE, Events, FakeTime, asking
from tests.examples import examples

CALLS = [("list_directory", {"path": "a"}), ("write_file", {"path": "ü", "content": "🐑"})]
EVENTS = [
    {"thought": "hm 🐑"},
    {"text": "Ä<b>"},
    {"call": {"key": 0, "id": "a", "name": CALLS[0][0], "arguments": '{"path": '}},
    {"call": {"key": 1, "name": CALLS[1][0]}},
    {"call": {"key": 0, "arguments": '"a"}'}},
    {"call": {"key": 1, "arguments": json.dumps(CALLS[1][1])[:-3]}},
    {"call": {"key": 1, "arguments": json.dumps(CALLS[1][1])[-3:]}},
    {"usage": {"prompt_tokens": 20, "completion_tokens": 9}},
    {"stop": "tool_calls"},
]
DATA = [*(json.dumps(e, ensure_ascii=False) for e in EVENTS), "[DONE]"]
STREAM = "".join(f"data: {data}\r\n\r\n" for data in DATA).encode()


def read(pieces: list[bytes]) -> tuple[list[tuple[object, ...]], Generation]:
    events, stream = Events(), decoder_for(Framing.SSE)
    answer = Answer(PlainAdapter(), asking(LIST, WRITE), events)
    reading = Reading(PlainDecoder(), answer, FakeTime().timing().clock)
    for piece in pieces:
        reading.take(stream.feed(piece))
    reading.take(stream.finish())
    return [*events.joined()], answer.complete(Stats())


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, len(STREAM)), max_size=40).map(sorted))
def test_the_same_answer_in_any_pieces(places: list[int]) -> None:
    ends = [*places, len(STREAM)]
    events, generation = read([STREAM[a:b] for a, b in zip([0, *places], ends, strict=True)])
    whole, expected = read([STREAM])
    assert events == whole
    assert generation.message.content == expected.message.content
    assert [c.arguments for c in generation.message.tool_calls] == [a for _, a in CALLS]


@settings(max_examples=examples(50))
@given(st.binary(max_size=200), st.integers(0, len(STREAM)))
def test_garbage_in_the_stream_raises_nothing(garbage: bytes, place: int) -> None:
    text = STREAM[:place] + garbage + STREAM[place:]
    if text.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"<"):
        with pytest.raises(UnreachableError, match="web page"):
            read([text])
        return
    _, generation = read([text])
    assert generation.finish_reason in FinishReason

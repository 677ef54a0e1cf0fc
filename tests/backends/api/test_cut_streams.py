"""A stream that ends at any byte, and a stream that comes in any pieces."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.api.assemble import Answer
from shepherd.backends.api.framing import decoder_for
from shepherd.backends.api.reading import Reading
from shepherd.backends.api.wire import Framing
from shepherd.backends.base import Generation, GenerationStats
from shepherd.errors import UnreachableError
from shepherd.events import TEXT_EVENTS, FinishReason
from tests.backends.api.plain_wire import PlainDecoder, PlainWire
from tests.backends.api.support import LIST, WRITE, Events, FakeTime, asking, backend_at
from tests.backends.api.upstream import Received, Reply, Upstream

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


async def test_cut_at_every_byte() -> None:
    cuts: list[int] = []

    def answer(request: Received) -> Reply:
        headers, cut = {"content-type": "text/event-stream"}, cuts[-1]
        return Reply(STREAM, headers=headers, cut_after=cut, until_close=cut % 2 == 0)

    outcomes: list[Generation | None] = []
    async with Upstream(answer) as up:
        backend = backend_at(up)
        for offset in range(len(STREAM) + 1):
            cuts.append(offset)
            before = len(up.requests)
            session, events = asking(LIST, WRITE), Events()
            try:
                outcomes.append(await backend.generate_from_session(session, events))
                assert len(up.requests) == before + 1
            except UnreachableError:
                outcomes.append(None)
                assert events.of(*TEXT_EVENTS) == []
        await backend.aclose()
    for generation in filter(None, outcomes):
        made = [(c.name, c.arguments) for c in generation.message.tool_calls]
        assert made == CALLS[: len(made)]
    first = STREAM.index(b"\r\n")
    assert all(g is None for g in outcomes[: first - 1])
    assert all(g is not None for g in outcomes[first:])
    begun, whole = outcomes[first], outcomes[-1]
    assert begun is not None
    assert whole is not None
    assert begun.finish_reason is FinishReason.ERROR
    assert whole.finish_reason is FinishReason.TOOL_CALLS
    assert len(whole.message.tool_calls) == 2


def read(pieces: list[bytes]) -> tuple[list[tuple[object, ...]], Generation]:
    events, stream = Events(), decoder_for(Framing.SSE)
    answer = Answer(PlainWire(), asking(LIST, WRITE), events)
    reading = Reading(PlainDecoder(), answer, FakeTime().timing().clock)
    for piece in pieces:
        reading.take(stream.feed(piece))
    reading.take(stream.finish())
    return [*events.joined()], answer.complete(GenerationStats())


@settings(max_examples=50)
@given(st.lists(st.integers(0, len(STREAM)), max_size=40).map(sorted))
def test_the_same_answer_in_any_pieces(places: list[int]) -> None:
    ends = [*places, len(STREAM)]
    events, generation = read([STREAM[a:b] for a, b in zip([0, *places], ends, strict=True)])
    whole, expected = read([STREAM])
    assert events == whole
    assert generation.message.content == expected.message.content
    assert [c.arguments for c in generation.message.tool_calls] == [a for _, a in CALLS]


@settings(max_examples=50)
@given(st.binary(max_size=200), st.integers(0, len(STREAM)))
def test_garbage_in_the_stream_raises_nothing(garbage: bytes, place: int) -> None:
    _, generation = read([STREAM[:place] + garbage + STREAM[place:]])
    assert generation.finish_reason in FinishReason

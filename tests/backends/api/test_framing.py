"""Bytes of a stream into events."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api import stream
from shepherd.backends.api.framing import (
    COMMENT,
    LinesDecoder,
    SniffedDecoder,
    SSEDecoder,
    StreamDecoder,
    StreamEvent,
    WholeDecoder,
    decoder_for,
)
from shepherd.errors import UnreachableError

LINES = st.sampled_from(
    [
        b"data: {}", b"data:x", b"data", b"data:  two", b"event: e", b"event:", b": comment", b"",
        b"id: 7", b"retry: 1", b"data: \xc3\xa4\xe2\x80\xa8", b"data: \xff\xc3", b"\xef\xbb\xbf",
        b"dat", b"  ", b'{"a": 1}', b"data: \xf0\x9f\x90\x91",
    ]
)  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """A stream and the places where it is cut."""
    lines = draw(st.lists(st.tuples(LINES, ENDS), max_size=12))
    data = b"".join(line + end for line, end in lines) + draw(LINES)
    return data, sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))


def decoded(decoder: StreamDecoder, pieces: list[bytes]) -> list[StreamEvent]:
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.finish()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@given(streams(), st.sampled_from([SSEDecoder, LinesDecoder, WholeDecoder, SniffedDecoder]))
def test_the_same_events_however_the_bytes_are_cut(
    stream: tuple[bytes, list[int]], decoder: type[StreamDecoder]
) -> None:
    data, places = stream
    whole = decoded(decoder(), [data])
    assert decoded(decoder(), cut(data, places)) == whole
    bytewise = cut(data, list(range(1, len(data))))
    assert decoded(decoder(), bytewise) == whole


@given(
    st.lists(st.tuples(st.sampled_from(["", "delta"]), st.text(max_size=20))),
    ENDS,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_what_was_written_is_read(events: list[tuple[str, str]], end: bytes, mark: bytes) -> None:
    data = mark
    for name, text in events:
        lines = [f"event: {name}"] if name else []
        lines += ["data: " + json.dumps(text)]
        data += b"".join(line.encode() + end for line in lines) + end
    expected = [StreamEvent(name, json.dumps(text).encode()) for name, text in events]
    assert decoded(decoder_for(stream.Framing.SSE), [data]) == expected


def test_details_of_server_sent_events() -> None:
    def read(data: bytes) -> list[StreamEvent]:
        return decoded(decoder_for(stream.Framing.SSE), [data])

    assert read(b"data: a\ndata:b\n\n") == [StreamEvent("", b"a\nb")]
    assert read(b"event: x\n\ndata: y\n\n") == [StreamEvent("", b"y")]
    assert read(b": ping\ndata: y\n\n") == [StreamEvent(COMMENT, b"ping"), StreamEvent("", b"y")]
    assert read(b"data: no end") == [StreamEvent("", b"no end")]
    assert read(b"data: [DONE]\r\n\r\n") == [StreamEvent("", b"[DONE]")]
    assert read(b"data: \xff\n\n") == [StreamEvent("", b"\xff")]
    odd = "a\u2028b\x0bc".encode()
    assert read(b"data: " + odd + b"\n\n") == [StreamEvent("", odd)]


def test_an_event_is_known_as_soon_as_its_last_byte_came() -> None:
    for end in (b"\n\n", b"\r\r", b"\r\n\r\n"):
        decoder = decoder_for(stream.Framing.SSE)
        decoder.feed(b"data: x" + end[:-1] if end != b"\r\n\r\n" else b"data: x\r\n")
        last = end[-1:] if end != b"\r\n\r\n" else b"\r"
        assert decoder.feed(last) == [StreamEvent("", b"x")]
        assert decoder.feed(b"\n" if end == b"\r\n\r\n" else b"") == []


def test_lines_of_json() -> None:
    data = b'{"a": 1}\n\n  \r\n{"b": "\xc3\xa4"}'
    assert decoded(LinesDecoder(), [data]) == [
        StreamEvent("", b'{"a": 1}'),
        StreamEvent("", b'{"b": "\xc3\xa4"}'),
    ]


@pytest.mark.parametrize("begin", [b"data: ", b'{"data": '])
@pytest.mark.parametrize("framing", stream.Framing)
def test_an_endless_event_is_refused(framing: stream.Framing, begin: bytes) -> None:
    decoder = decoder_for(framing, max_bytes=1000)
    decoder.feed(begin + b"x" * 900)
    with pytest.raises(UnreachableError):
        decoder.feed(b"x" * 200)


def test_many_lines_of_one_event_are_refused_too() -> None:
    decoder = decoder_for(stream.Framing.SSE, max_bytes=1000)
    decoder.feed(b"data: 12345\n" * 80)
    with pytest.raises(UnreachableError):
        decoder.feed(b"data: 12345\n" * 20)

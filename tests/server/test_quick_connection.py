"""A connection's quick way for usual requests is h11's way in every byte and event."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.server.transport.framing import StrictConnection
from shepherd.server.transport.quick import QuickConnection, usual
from tests.examples import examples

LIMITS = 2048, 20
HOST = b"Host: localhost"
USUAL = [
    b"GET /health HTTP/1.1\r\nHost: localhost:8000\r\nAccept: */*\r\n\r\n",
    b"\r\n".join(
        [
            b"POST /v1/chat/completions HTTP/1.1",
            b"Host: a",
            b"Connection: keep-alive",
            b"Content-Type: application/json",
            b"Authorization: Bearer x y",
            b"Content-Length: 2",
            b"",
            b"{}",
        ]
    ),
    b"DELETE /v1/responses/resp_1?key=%20 HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
]

odd: st.SearchStrategy[bytes] = st.sampled_from(
    [
        HOST,
        b"Host:",
        b"Content-Length: 5",
        b"Content-Length: 05",
        b"Content-Length: 5, 5",
        b"Content-Length : 5",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
        b"Connection: keep-alive",
        b"Connection: Upgrade, HTTP2-Settings",
        b"Upgrade: h2c",
        b"Expect: 100-continue",
        b"X-Plain: a b",
        b"X-Folded: a\r\n b",
        b"X-Bare: a\nb: c",
        b"X-Tab: a\tb",
        b"X-Latin: \xe9",
        b"X-Nul: \0",
        b"X Space: a",
        b"X_Under: a",
        b"X-Empty:",
        b": a",
    ]
)


def _joined(line: bytes, fields: list[bytes], body: bytes, tail: bytes) -> bytes:
    return b"\r\n".join([line, *fields, b"", body]) + tail


def _changed(data: bytes, at: int, lost: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + lost :]


requests: st.SearchStrategy[bytes] = st.builds(
    _joined,
    st.sampled_from(
        [
            b"POST / HTTP/1.1",
            b"GET /a?b HTTP/1.1",
            b"HEAD / HTTP/1.1",
            b"post / HTTP/1.1",
            b"GET http://localhost/ HTTP/1.1",
            b"GET /a b HTTP/1.1",
            b"GET / HTTP/1.0",
            b"CONNECT a:1 HTTP/1.1",
        ]
    ),
    st.lists(odd, max_size=3).map(lambda fields: [HOST, *fields]) | st.lists(odd, max_size=3),
    st.sampled_from([b"", b"12345", b"\r\n"]),
    st.sampled_from([b"", b"GET / HTTP/1.1\r\n"]),
)
whole: st.SearchStrategy[bytes] = st.sampled_from(USUAL) | requests
changed: st.SearchStrategy[bytes] = st.builds(
    _changed, whole, st.integers(0, 200), st.integers(0, 3), st.binary(max_size=2)
)


def described(event: h11.Event) -> tuple[Any, ...]:
    """An event, for comparisons."""
    if isinstance(event, h11.Request):
        return event.method, event.target, event.http_version, list(event.headers)
    return (type(event), bytes(event.data) if isinstance(event, h11.Data) else event)


def read(connection: StrictConnection, data: bytes) -> list[tuple[Any, ...]]:
    """The events of received data up to the one that waits, or the refusal."""
    if data:  # no bytes would be the end of the connection
        connection.receive_data(data)
    events: list[tuple[Any, ...]] = []
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return [*events, (connection.refusal.status, str(connection.refusal))]
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return [*events, (event, connection.our_state, connection.their_state)]
        events.append(described(cast(h11.Event, event)))


@pytest.mark.parametrize("data", USUAL)
def test_the_requests_of_usual_clients_are_usual(data: bytes) -> None:
    assert usual(data, *LIMITS)


@pytest.mark.parametrize("data", USUAL)
def test_more_or_less_than_a_request_is_not_usual(data: bytes) -> None:
    assert not usual(data[:-1], *LIMITS)
    assert not usual(data + b"G", *LIMITS)
    assert not usual(data, 20, 20)
    assert not usual(data, 2048, 1)


@settings(max_examples=examples(300), deadline=None)
@given(whole | changed)
def test_every_request_has_the_events_or_the_refusal_of_h11(data: bytes) -> None:
    quick, strict = QuickConnection(*LIMITS), StrictConnection(*LIMITS)
    strict_events = read(strict, data)
    assert _without_state(read(quick, data)) == _without_state(strict_events)


def _without_state(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A request has begun to be answered as soon as h11 has read it."""
    waits = (h11.NEED_DATA, h11.PAUSED)
    return [event[:1] if event[0] in waits else event for event in events]


def answered(connection: StrictConnection, events: Sequence[h11.Event]) -> list[Any]:
    """The bytes and the states after each event of a response."""
    read(connection, USUAL[1])
    seen: list[Any] = []
    for event in events:
        try:
            seen.append(connection.send(event))
        except h11.LocalProtocolError:
            return [*seen, connection.our_state]
        seen.append((connection.our_state, connection.their_state))
    return seen


fields = st.lists(
    st.sampled_from(
        [
            ("Content-Type", "application/json"),
            ("x-request-id", "req_1"),
            ("connection", "close"),
            ("Connection", "keep-alive"),
        ]
    ),
    max_size=3,
    unique=True,
)


@settings(max_examples=examples(150), deadline=None)
@given(
    status=st.sampled_from([200, 204, 304, 404, 500]),
    fields=fields,
    sized=st.sampled_from([None, 0, 4, 8]),
    parts=st.lists(st.sampled_from([b"", b"four"]), max_size=3),
    is_last=st.booleans(),
)
def test_every_response_has_the_bytes_and_the_states_of_h11(
    status: int,
    fields: list[tuple[str, str]],
    sized: int | None,
    parts: list[bytes],
    is_last: bool,  # noqa: FBT001 - hypothesis gives it by its name
) -> None:
    length = [] if sized is None else [("Content-Length", str(sized))]
    events: list[h11.Event] = [h11.Response(status_code=status, headers=[*fields, *length])]
    events += [*(h11.Data(data=part) for part in parts), h11.EndOfMessage()]
    quick, strict = QuickConnection(*LIMITS), StrictConnection(*LIMITS)
    for connection in (quick, strict):
        connection.sends_last = is_last
    assert answered(quick, events) == answered(strict, events)


@pytest.mark.parametrize("make", [QuickConnection, StrictConnection])
def test_what_comes_before_the_answer_waits_for_its_end(
    make: Callable[[int, int], StrictConnection],
) -> None:
    connection = make(*LIMITS)
    read(connection, USUAL[1])
    assert read(connection, USUAL[0])[-1][0] is h11.PAUSED
    with pytest.raises(h11.LocalProtocolError):
        connection.start_next_cycle()


def test_a_connection_serves_usual_and_other_requests_in_turn() -> None:
    connection = QuickConnection(*LIMITS)
    other = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    for data in (USUAL[0], other, USUAL[1], USUAL[0] + other, b"", USUAL[2]):
        assert len(read(connection, data)) >= 3
        connection.send(h11.Response(status_code=200, headers=[("content-length", "2")]))
        sent = connection.send(h11.Data(data=b"{}"))
        assert sent is not None
        assert sent.endswith(b"\r\n\r\n{}")
        connection.send(h11.EndOfMessage())
        connection.start_next_cycle()

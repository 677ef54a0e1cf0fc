"""What proxies, bugs and bad luck make of a stream."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from tests.backends.conformance.language import compact

JUNK: list[Any] = [None, True, -1.5, "", "\ud83d", [None], {"a": [{}]}]
"""Values of every type, in the place of those that belong there."""

_DEEP = "[" * 5_000

SSE_NOISE = [
    b": keep-alive\n\n",
    b":\n",
    b"retry: 1000\n\n",
    b"id: 7\n\n",
    b'event: surprise\ndata: {"type":"surprise","delta":{"text":"no"},"n":[1]}\n\n',
    b"event: surprise\n\n",
    b"data: {broken\n\n",
    b"data: [1,2]\n\n",
    b'data: "text"\n\n',
    b"data: null\n\n",
    b"data: 7\n\n",
    b"data:\n\n",
    b"data\n\n",
    b"\0\n\n",
    b"data: \0\0\n\n",
    b'data: {"a":"\xff\xfe","b":"\xc3"}\n\n',
    b"\xff\xfe\n\n",
    f"data: {_DEEP}\n\n".encode(),
    b"data: " + b"9" * 5000 + b"\n\n",
]
"""None of it says anything, at the beginning of any event."""

LINE_NOISE = [
    b"\n",
    b"\r\n",
    b"   \n",
    b"{broken\n",
    b"[1,2]\n",
    b'"text"\n',
    b"null\n",
    b"7\n",
    b'{"type":"surprise","n":[1]}\n',
    b"\0\n",
    b'{"a":"\xff\xfe","b":"\xc3"}\n',
    b"\xff\xfe\n",
    b"<html>\n",
    f"{_DEEP}\n".encode(),
]


def mutated(frames: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The stream with one value of one event replaced by one of another type, or gone."""
    for index, frame in enumerate(frames):
        lead, data, rest = _parts(frame)
        if data is None:
            continue
        for path in _paths(data):
            for changed in (*(_replaced(data, path, junk) for junk in JUNK), _gone(data, path)):
                body = json.dumps(changed).encode()
                yield [*frames[:index], lead + body + rest, *frames[index + 1 :]]


def _parts(frame: bytes) -> tuple[bytes, Any, bytes]:
    """What is before the JSON of an event, its value, and what is behind it."""
    start = frame.find(b"{")
    if start < 0:
        return frame, None, b""
    end = frame.rindex(b"}") + 1
    return frame[:start], json.loads(frame[start:end]), frame[end:]


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """Where there is a value within this one."""
    if isinstance(value, dict):
        for key, inner in cast(dict[str, Any], value).items():
            yield (key,)
            yield from ((key, *path) for path in _paths(inner))
    elif isinstance(value, list):
        for index, inner in enumerate(cast(list[Any], value)):
            yield (index,)
            yield from ((index, *path) for path in _paths(inner))


def _copy_to(data: Any, path: tuple[Any, ...]) -> tuple[Any, Any]:
    """A copy, and in it what holds the last step of the path."""
    whole = holder = json.loads(compact(data))
    for step in path[:-1]:
        holder = holder[step]
    return whole, holder


def _replaced(data: Any, path: tuple[Any, ...], junk: Any) -> Any:
    whole, holder = _copy_to(data, path)
    holder[path[-1]] = junk
    return whole


def _gone(data: Any, path: tuple[Any, ...]) -> Any:
    whole, holder = _copy_to(data, path)
    del holder[path[-1]]
    return whole

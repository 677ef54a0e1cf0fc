"""A model server that answers chat requests at once: `python -m bench.server.upstream`."""

import asyncio
import json
from typing import Any

MODEL = "model-1"
WORDS = [f"word{n} " for n in range(16)]
"""The pieces of each answer."""

_USAGE = {"prompt_tokens": 20, "completion_tokens": len(WORDS), "total_tokens": 20 + len(WORDS)}
_HEAD = {"id": "chatcmpl-1", "created": 1, "model": MODEL}


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


class _Connection(asyncio.Protocol):
    """Answers the requests of one connection, one after the other."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, rest = self._received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if blank and len(rest) >= length:
            self._received = rest[length:]
            self._transport.write(_answer(head, rest[:length]))


def _answer(head: bytes, body: bytes) -> bytes:
    if head.startswith(b"GET"):
        return _MODELS
    return _STREAM if json.loads(body).get("stream") else _WHOLE


def _plain(value: object) -> bytes:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def _chunk(delta: object, finish: str | None = None, **more: object) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({**_HEAD, "object": "chat.completion.chunk", "choices": [choice], **more})


def _stream() -> bytes:
    pieces = [_chunk({"role": "assistant", "content": ""})]
    pieces += [_chunk({"content": word}) for word in WORDS]
    pieces += [_chunk({}, "stop"), _chunk({}, usage=_USAGE), "[DONE]"]
    events = [f"data: {piece}\n\n".encode() for piece in pieces]
    body = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked"
    return head + b"\r\n\r\n" + body + b"0\r\n\r\n"


_MESSAGE = {"role": "assistant", "content": "".join(WORDS)}
_CHOICE = {"index": 0, "message": _MESSAGE, "finish_reason": "stop"}
_WHOLE = _plain({**_HEAD, "object": "chat.completion", "choices": [_CHOICE], "usage": _USAGE})
_STREAM = _stream()
_MODELS = _plain({"object": "list", "data": [{"id": MODEL, "max_model_len": 32768}]})

if __name__ == "__main__":
    asyncio.run(main())

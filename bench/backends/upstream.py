"""An upstream in a process of its own: `python -m bench.backends.upstream`.

A path begins with API, mode and number of chunks: `/anthropic/paced/200/v1/messages`.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import cache
from time import monotonic_ns

from bench.backends.recordings import Recording, recording
from bench.backends.text import words

BURST = "burst"
"""As fast as possible, many chunks in one read."""
PACED = "paced"
"""One by one, each a separate write. The text contains its time of sending in nanoseconds of the
monotonic clock. The first chunk also contains the time of the request."""
CALLS = "calls"
"""As BURST, tool calls instead of text."""

PAUSE = 0.001
CALL_WORDS = 100


async def main() -> None:
    """Serve until the process is ended."""
    async with serving() as url:
        print(f"listening on {url}", flush=True)
        await asyncio.Event().wait()


@asynccontextmanager
async def serving() -> AsyncGenerator[str]:
    """A server; yields its address, and closes all connections at the end."""
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            adapter, mode, count = await _request(reader)
            if mode == PACED:
                await _paced(writer, recording(adapter, 0, 0), count)
            else:
                writer.write(_burst(adapter, mode, count))
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, int]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = head.partition("content-length:")[2].partition("\r\n")[0]
    await reader.readexactly(int(length or 0))
    _, adapter, mode, count, *_ = head.split(" ", 2)[1].split("/")
    return adapter, mode, int(count)


@cache
def _burst(adapter: str, mode: str, count: int) -> bytes:
    answer = recording(adapter, count if mode == CALLS else 0, CALL_WORDS)
    chunks = answer.calls if mode == CALLS else map(answer.chunk, words(count))
    return _head(answer) + _body([*answer.before, *chunks, *answer.after]) + _END


async def _paced(writer: asyncio.StreamWriter, answer: Recording, count: int) -> None:
    start = _head(answer) + _body(answer.before)
    text = f" {monotonic_ns()}"
    for _ in range(count):
        writer.write(start + _body([answer.chunk(f"{text} {monotonic_ns()}")]))
        await writer.drain()
        await asyncio.sleep(PAUSE)
        start, text = b"", ""
    writer.write(_body(answer.after) + _END)
    await writer.drain()


def _head(answer: Recording) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"content-type: {answer.content_type}", "cache-control: no-cache"]
    return "\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode()


def _body(events: Iterable[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)


_END = b"0\r\n\r\n"

if __name__ == "__main__":
    asyncio.run(main())

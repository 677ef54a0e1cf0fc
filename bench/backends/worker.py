"""A client in a separate process: `python -m bench.backends.worker SIDE ADAPTER URL`.

Reads a `Task` as JSON per line, and writes a `Result` for each.
"""

import asyncio
import gc
import json
import re
import sys
from dataclasses import asdict, dataclass, field
from time import monotonic_ns, process_time

from bench.backends.client import Client, Ours, Seen
from bench.backends.sdks import SDKS
from bench.backends.upstream import PACED

OURS, SDK = "shepherd", "sdk"

_STAMP = re.compile(r"\d{12,}")


@dataclass(frozen=True, slots=True)
class Task:
    """Make the call `times` times, in `mode` with `count` chunks; `fresh`: a client for each."""

    mode: str
    count: int
    times: int = 1
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """Processor seconds of all calls, and the added nanoseconds.

    These are added to the first token of each call, and to each further chunk. `characters` counts
    those of text and calls.
    """

    cpu: float = 0.0
    first: list[int] = field(default_factory=list[int])
    chunks: list[int] = field(default_factory=list[int])
    characters: int = 0


class Worker:
    """Holds one client per address, so that connections are reused as in a program."""

    def __init__(self, side: str, adapter: str, url: str) -> None:
        self._side = side
        self._adapter = adapter
        self._url = url
        self._clients: dict[str, Client] = {}

    async def run(self, task: Task) -> Result:
        """Do the task; garbage of earlier tasks is collected first."""
        url = f"{self._url}/{self._adapter}/{task.mode}/{task.count}"
        result, cpu, characters = Result(), 0.0, 0
        gc.collect()
        for _ in range(task.times):
            seen = Seen()
            start, began = monotonic_ns(), process_time()
            client = self._new(url) if task.fresh else self._client(url)
            await client.ask(seen)
            cpu += process_time() - began
            if task.fresh:
                await client.aclose()
            if task.mode == PACED:
                _measure(start, seen, result)
            characters += sum(len(text) for _, text in seen.texts)
            characters += sum(len(name + json.dumps(arguments)) for name, arguments in seen.calls)
        return Result(cpu, result.first, result.chunks, characters)

    def _client(self, url: str) -> Client:
        if url not in self._clients:
            self._clients[url] = self._new(url)
        return self._clients[url]

    def _new(self, url: str) -> Client:
        return Ours(self._adapter, url) if self._side == OURS else SDKS[self._adapter](url)

    async def aclose(self) -> None:
        """Close all clients."""
        for client in self._clients.values():
            await client.aclose()


def _measure(start: int, seen: Seen, result: Result) -> None:
    """Add the times in the text's stamps to `result`."""
    stamps = [(at, int(stamp)) for at, text in seen.texts for stamp in _STAMP.findall(text)]
    (_, received), (at, sent), *rest = stamps
    result.first.append(received - start + at - sent)
    result.chunks.extend(at - sent for at, sent in rest)


async def main(side: str, adapter: str, url: str) -> None:
    """Work until there are no more tasks."""
    worker = Worker(side, adapter, url)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        result = await worker.run(Task(**json.loads(line)))
        print(json.dumps(asdict(result)), flush=True)
    await worker.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

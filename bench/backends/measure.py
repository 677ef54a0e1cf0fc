"""Alternating rounds of both sides, each client in a separate process."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from bench.backends.recordings import recording
from bench.backends.upstream import BURST, CALL_WORDS, CALLS, PACED
from bench.backends.worker import OURS, SDK, Result, Task
from bench.peers import served

TEXT, EACH, TOOLS = "text", "text, one by one", "calls"
FIRST, FRESH = "first token", "first token of a new client"

WHOLE_CALLS = ("gemini", "ollama")
"""APIs that send a call in one chunk."""

Rounds = dict[str, dict[str, list[Result]]]
"""The results of each round, by task and by side."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of work: chunks and calls of an answer, first tokens in a round."""

    rounds: int = 7
    chunks: int = 1500
    paced: int = 500
    calls: int = 4
    firsts: int = 25
    fresh: int = 5

    def tasks(self, adapter: str) -> dict[str, Task]:
        """The tasks of each side in a round."""
        calls = self.chunks // 10 if adapter in WHOLE_CALLS else self.calls
        return {
            TEXT: Task(BURST, self.chunks, times=3),
            TOOLS: Task(CALLS, calls, times=3),
            EACH: Task(PACED, self.paced),
            FIRST: Task(PACED, 3, times=self.firsts),
            FRESH: Task(PACED, 3, times=self.fresh, fresh=True),
        }


QUICK = Sizes(rounds=1, chunks=20, paced=5, calls=1, firsts=2, fresh=1)


def chunks_of(adapter: str, task: Task) -> int:
    """The number of chunks in a task's answer."""
    if task.mode == CALLS:
        return task.times * len(recording(adapter, task.count, CALL_WORDS).calls)
    return task.times * task.count


def measure(adapter: str, sizes: Sizes) -> Rounds:
    """The rounds on one adapter; the first side alternates.

    Raises RuntimeError if the two sides did not receive the same answer.
    """
    rounds: Rounds = {}
    tasks = sizes.tasks(adapter)
    upstream = [sys.executable, "-m", "bench.backends.upstream"]
    with served(upstream, dict(os.environ)) as url, ExitStack() as stack:
        workers = {side: stack.enter_context(_worker(side, adapter, url)) for side in (OURS, SDK)}
        for name, task in tasks.items():
            warm = {worker.do(task).characters for worker in workers.values()}
            if len(warm) > 1:
                raise RuntimeError(f"{adapter}, {name}: the sides saw different answers: {warm}")
        for number in range(sizes.rounds):
            for name, task in tasks.items():
                for side in (OURS, SDK) if number % 2 == 0 else (SDK, OURS):
                    results = rounds.setdefault(name, {OURS: [], SDK: []})
                    results[side].append(workers[side].do(task))
    return rounds


class _Worker:
    """A worker that waits for its tasks."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def do(self, task: Task) -> Result:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(task)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a client ended before its task was done")
        return Result(**json.loads(line))


@contextmanager
def _worker(side: str, adapter: str, url: str) -> Generator[_Worker]:
    command = [sys.executable, "-m", "bench.backends.worker", side, adapter, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield _Worker(process)
        finally:
            process.terminate()

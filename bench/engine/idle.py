"""`python -m bench.engine.idle [MODEL…]`: does a new prompt take longer beside idle conversations?

Reads a prompt of which nothing is cached, in an empty pool and beside seven conversations of about
500 tokens that wait for their users. The prompts differ, and have the same number of tokens. Both
sides take turns in one process, with one thread; the fastest of several runs counts, in processor
time. Afterwards one conversation goes on, which shows what making room costs it.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from bench.table import machine, markdown, milliseconds, ratio
from bench.weights import PUP, SMOLLM2, chosen_models
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.messages import Message
from shepherd.sampling import Sampling
from shepherd.session import Session

RUNS = 5
IDLE = 7
WORDS = ("sheep", "rain", "clock", "salt", "bee", "chess", "moon", "wolf", "road", "tree")
SIZES = (200, 800)
_IDLE_WORDS = 180
HEADER = ("model", "new tokens", "empty", "beside seven", "ratio", "the next turn of one of them")
_CONTEXT = 16_384
_SLOTS = 8


def main(arguments: Sequence[str]) -> int:
    """Print a row for each model and length."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine.idle", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args(arguments)
    rows: list[Sequence[str]] = []
    for name, model in chosen_models(options.models, [PUP, SMOLLM2]).items():
        rows += [(name, *asyncio.run(_row(model, words, options.runs))) for words in SIZES]
    print(f"{machine()}; one thread\n\n{markdown(HEADER, rows)}")
    return 0


async def _row(model: Path, words: int, runs: int) -> Sequence[str]:
    empty: list[float] = []
    beside: list[float] = []
    following: list[float] = []
    tokens, numbers = 0, count()
    for _ in range(runs):
        seconds, _, tokens = await _measure(model, words, 0, numbers)
        empty.append(seconds)
        seconds, turn, _ = await _measure(model, words, IDLE, numbers)
        beside.append(seconds)
        following.append(turn)
    fastest = min(empty), min(beside)
    times = [milliseconds(seconds) for seconds in (*fastest, min(following))]
    return f"{tokens:,}", times[0], times[1], ratio(fastest[1], fastest[0]), times[2]


async def _measure(
    model: Path, words: int, idle: int, numbers: "count[int]"
) -> tuple[float, float, int]:
    """The seconds of the new prompt and of an idle conversation's next turn, and the tokens."""
    settings = LlamaCppSection(threads=1, context_size=_CONTEXT)
    backend = await LlamaCppBackend.load(model, settings, Sampling(temperature=0), parallel=_SLOTS)
    try:
        waiting = [_session(_IDLE_WORDS, next(numbers)) for _ in range(idle)]
        for session in waiting:
            session.add((await backend.generate_from_session(session, _accept, 4)).message)
        await backend.generate_from_session(_session(4, next(numbers)), _accept, 1)
        new = _session(words, next(numbers))
        started = time.process_time()
        answer = await backend.generate_from_session(new, _accept, 1)
        seconds, started = time.process_time() - started, time.process_time()
        if waiting:
            waiting[0].add(Message.user("Go on."))
            await backend.generate_from_session(waiting[0], _accept, 1)
        return seconds, time.process_time() - started, answer.stats.prompt_tokens
    finally:
        await backend.aclose()


def _session(words: int, number: int) -> Session:
    """A prompt that shares no beginning with another one."""
    text = " ".join(WORDS[(place * place + number) % len(WORDS)] for place in range(words))
    session = Session(f"You are helper {number:03}.")
    session.add(Message.user(text))
    return session


def _accept(_event: object, _content: str, _name: str, _id: str) -> bool:
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

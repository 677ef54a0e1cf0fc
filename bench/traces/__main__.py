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
from bench.traces.drive import Result, play, play_to_server
from bench.traces.engine import opened
from bench.traces.sessions import Session, in_turn, least, made, optimum, read
from bench.weights import chosen_models, with_context

HEADER = (
    "side",
    "computed over the least",
    "over the oracle",
    "first token",
    "p95",
    "until the end",
    "failures",
)
TOLD, UNTOLD = "Shepherd", "Shepherd, not told of tools and ends"
SERVERS: dict[str, Callable[[Load], AbstractContextManager[str]]] = {
    "Shepherd's server": shepherd_server,
    "llama.cpp's server": llama_server,
}
SIDES = (TOLD, UNTOLD, *SERVERS)
ROOM = 64
"""Cells beside the prompts, for an answer of each agent."""


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table for each number of agents, share of the cells and host memory."""
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
            for host in options.hosts:
                title = f"{len(played)} agents, cells for {share:g} of what they hold"
                print(f"\n## {title}, {_host_memory(host)}", flush=True)
                print(f"\n{measure(model, played, (share, host), options)}", flush=True)
    return 0


def measure(
    model: Path, played: Sequence[Session], room: tuple[float, int], options: argparse.Namespace
) -> str:
    """What each side computes with cells for a share of what the sessions hold together.

    `room` is that share, and the MiB of host memory.
    """
    share, host = room
    size: int = options.size
    longest = max(session.longest for session in played)
    capacity = max(longest, int(share * sum(session.longest for session in played)))
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        cells = capacity * size + ROOM * len(played)
        copy = with_context(model, Path(folder) / "model.gguf", cells)
        load = Load(copy, cells, len(played), options.threads, host)
        for side in options.sides:
            results.append(Result(side))
            if side in SERVERS:
                with SERVERS[side](load) as url:
                    asyncio.run(play_to_server(results[-1], url, played, size))
            else:
                asyncio.run(_play_to_engine(results[-1], load, played, size))
    token_bytes = max(result.token_bytes for result in results)
    if host < 0:
        capacity = sum(session.longest for session in played)
    else:  # also the room for answers, most of which is not in use
        capacity = int(cells + (host * 2**20 / token_bytes if token_bytes else 0)) // size
    return table(results, played, capacity, size)


async def _play_to_engine(result: Result, load: Load, played: Sequence[Session], size: int) -> None:
    async with opened(load, size, result, tells=result.side == TOLD) as asking:
        await play(result, asking.ask, played)


def table(results: Sequence[Result], played: Sequence[Session], capacity: int, size: int) -> str:
    """One row for each side, and one for a cache of blocks that forgets what is used longest ago.

    An oracle has the capacity of cells and host memory together, and knows the order in which the
    requests of a side ended. It takes them one after the other.
    """
    lowest = optimum(played) * size
    rows = [r.row(lowest, least(played, r.order, capacity) * size) for r in results]
    turns = in_turn(played)
    computed = least(played, turns, capacity, foresees=False) * size
    blocks = Result("least recently used blocks, computed", computed)
    text = markdown(HEADER, [*rows, blocks.row(lowest, least(played, turns, capacity) * size)])
    told, untold = (next((r.computed for r in results if r.side == s), 0) for s in (TOLD, UNTOLD))
    if told and untold and abs(told - untold) < SAME * untold:
        text += "\n\nTelling the engine of tools and ends makes no difference here."
    return text


SAME = 0.01
"""Counts that differ by less are the same: the order of requests differs from run to run."""


def _host_memory(host: int) -> str:
    """What the cache in host memory may take, in words."""
    return "host memory by default" if host < 0 else f"{host} MiB of host memory"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.traces")
    parser.add_argument("--folder", type=Path, help="of public traces; without it, made ones")
    parser.add_argument("--model", default="Pup")
    parser.add_argument("--agents", nargs="+", type=int, default=[1, 4, 8, 16])
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 0.5, 0.25])
    parser.add_argument(
        "--hosts", nargs="+", type=int, default=[-1, 0], help="MiB of host memory; -1 = default"
    )
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=[TOLD, UNTOLD, SIDES[-1]])
    parser.add_argument("--size", type=int, default=4, help="tokens for a block of 64")
    parser.add_argument("--blocks", type=int, default=1_000, help="the longest prompt")
    parser.add_argument("--requests", type=int, default=20, help="of each session")
    parser.add_argument("--seconds", type=float, default=2.0, help="the longest wait")
    parser.add_argument("--threads", type=int, default=0, help="of each server; 0 = one per core")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A model on RPC workers of this machine beside the same model in-process.

`python -m bench.rpc [MODEL.gguf]` needs a llama.cpp with RPC (docs/rpc.md). All parts share the
cores of one machine and use one thread each: the ratios show what the relay and the protocol cost,
not what a network costs.
"""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.table import markdown
from bench.weights import SMOLLM2, chosen_models
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.rpc.protocol import Address, WorkerError, probe
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.events import Stats, ignore_events
from shepherd.messages import Message
from shepherd.sampling import Sampling
from shepherd.session import Session

ROUNDS, TOKENS, WORKERS = 5, 32, (1, 2)
PROMPT = "The quick brown fox jumps over the lazy dog. " * 8
_START_SECONDS = 60.0


@contextmanager
def worker() -> Generator[str]:
    """The address of a new worker with one thread."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "shepherd", "rpc-worker", "--port", str(port)]
    options = ["--threads", "1", "--no-sandbox"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(Address("127.0.0.1", port))
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_for(address: Address) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            probe(address)
        except WorkerError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


async def measure(path: Path, servers: list[str]) -> tuple[float, float]:
    """Tokens per second of prefill and decode, the best of several rounds."""
    section = LlamaCppSection(
        threads=1, context_size=2048, cache_disk_mib=0, speculation="off", rpc_servers=servers
    )
    backend = await LlamaCppBackend.load(path, section, Sampling(temperature=0.0))
    try:
        rounds = [await _answer(backend, number) for number in range(ROUNDS)]
    finally:
        await backend.aclose()
    return (
        max(
            (stats.prompt_tokens - stats.cached_tokens) / stats.prefill_seconds for stats in rounds
        ),
        max(stats.completion_tokens / stats.decode_seconds for stats in rounds),
    )


async def _answer(backend: LlamaCppBackend, number: int) -> Stats:
    session = Session(messages=[Message.user(f"{number}. {PROMPT} Tell me a long story.")])
    prefilled = await backend.prefill_session(session, ignore_events)
    return (await backend.generate_from_prefilled(prefilled, ignore_events, TOKENS)).stats


def main() -> None:
    """Print prefill and decode of each arrangement, and their ratios to in-process."""
    name = sys.argv[1] if len(sys.argv) > 1 else SMOLLM2
    path = chosen_models([name], [])[name]
    local = asyncio.run(measure(path, []))
    rows = [("in-process", f"{local[0]:.0f}", "1.00", f"{local[1]:.1f}", "1.00")]
    remote = [_row(path, count, local) for count in WORKERS]
    header = ("", "prefill, tokens/s", "ratio", "decode, tokens/s", "ratio")
    print(markdown(header, [*rows, *remote]))


def _row(path: Path, count: int, local: tuple[float, float]) -> tuple[str, ...]:
    if count == 1:
        with worker() as first:
            prefill, decode = asyncio.run(measure(path, [first]))
    else:
        with worker() as first, worker() as second:
            prefill, decode = asyncio.run(measure(path, [first, second]))
    name = f"{count} worker{'s' if count > 1 else ''}"
    ratios = (prefill / local[0], decode / local[1])
    return name, f"{prefill:.0f}", f"{ratios[0]:.2f}", f"{decode:.1f}", f"{ratios[1]:.2f}"


if __name__ == "__main__":
    main()

"""`python -m bench.engine.tokens [MODEL…]`: what each stage of a token costs.

It is processor time with one thread for llama.cpp, the minimum of several runs, so that it holds on
a busy machine too, as far as the cache does. The costs of a request are spread over its tokens.
`decode` and `sample` are llama.cpp's calls. `engine` is the rest of the thread
that owns llama.cpp, `loop` is the event loop up to the callback for events.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import thread_time
from typing import Any

from bench.table import machine, markdown
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.sampling.sampler import SamplerChain
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.messages import Message
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.session import Session

TOKENS = 64
RUNS = 5
STREAMS = (1, 8)
ALTERNATIVES = (None, 5)
STAGES = ("decode", "sample", "engine", "loop")
_CONTEXT = 4096
_QUESTION = "Tell me about the sheep in the hills, and about the dog that watches them."


class Clock:
    """The processor time inside of functions, by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.restart()

    def restart(self) -> None:
        """Forget all times."""
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time counts for a stage."""

        def call(*arguments: Any) -> Any:
            started = thread_time()
            try:
                return function(*arguments)
            finally:
                self.seconds[stage] += thread_time() - started

        return call


def main(arguments: Sequence[str]) -> int:
    """Print a table for each model, of the built-in one without arguments."""
    print(f"{machine()}; microseconds a token")
    for model in [Path(name) for name in arguments] or [builtin_model()]:
        rows = [
            (str(streams), "–" if top is None else str(top), *_cells(model, streams, top))
            for streams in STREAMS
            for top in ALTERNATIVES
        ]
        print(f"\n{model.stem}:\n\n{markdown(('streams', 'top_logprobs', *STAGES), rows)}")
    return 0


def _cells(model: Path, streams: int, top: int | None) -> list[str]:
    costs = asyncio.run(_measure(model, streams, top))
    return [f"{1e6 * costs[stage]:.0f}" for stage in STAGES]


async def _measure(model: Path, streams: int, top: int | None) -> Mapping[str, float]:
    """Seconds per token by stage."""
    clock, lib = Clock(), bindings()
    decode, sample = lib.llama_decode, SamplerChain.sample
    settings = LlamaCppSection(threads=1, context_size=_CONTEXT, speculation="off")
    sampling = Sampling(ignore_eos=True, seed=1, logprobs=top)
    backend = await LlamaCppBackend.load(model, settings, sampling, parallel=streams)
    lib.llama_decode = clock.timed("decode", decode)
    SamplerChain.sample = clock.timed("sample", sample)
    try:
        runs = [await _run(backend, clock, streams) for _ in range(RUNS)]
    finally:
        lib.llama_decode, SamplerChain.sample = decode, sample
        await backend.aclose()
    return {stage: min(run[stage] for run in runs) for stage in STAGES}


async def _run(backend: LlamaCppBackend, clock: Clock, streams: int) -> Mapping[str, float]:
    sessions = [Session("") for _ in range(streams)]
    for number, session in enumerate(sessions):
        session.add(Message.user(f"{number} {_QUESTION}"))
    clock.restart()
    whole, loop = time.process_time(), thread_time()
    answers = await asyncio.gather(
        *(backend.generate_from_session(session, _accept, TOKENS) for session in sessions)
    )
    loop, whole = thread_time() - loop, time.process_time() - whole
    seconds = clock.seconds
    owner = whole - loop - seconds["decode"] - seconds["sample"]
    tokens = sum(answer.stats.completion_tokens for answer in answers)
    return {
        stage: value / tokens
        for stage, value in (seconds | {"engine": owner, "loop": loop}).items()
    }


def _accept(_event: object, _content: str, _name: str, _id: str) -> bool:
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

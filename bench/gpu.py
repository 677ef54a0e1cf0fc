"""`python -m bench.gpu [MODEL]`: the engine's speeds on the device that llama.cpp computes on.

Without MODEL it measures the built-in model, and takes about a minute on two cores. It runs on a
CPU too. All times are those of the work, also where calls return early.
"""

import argparse
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from random import Random

from bench.table import machine, markdown, milliseconds, ratio
from shepherd.backends.base import Concurrency
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.context import Span
from shepherd.backends.llamacpp.native.devices import gpus
from shepherd.backends.llamacpp.scheduling.job import Job, Phase
from shepherd.catalog.model_files import locate_model
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import DEFAULT_SAMPLING, Sampling

GREEDY = Sampling(temperature=0.0, ignore_eos=True).over(DEFAULT_SAMPLING)
FIRST_TOKEN = 100
"""Tokens below it may be control tokens."""

CPU_CHUNK = 512
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: the model, the settings, and sizes in tokens."""

    model: Path
    settings: LlamaCppSection
    streams: Sequence[int]
    prompt: int
    answer: int
    lengths: Sequence[int]

    @contextmanager
    def engine(self, cells: int, streams: int = 1, speculation: str = "off") -> Generator[Engine]:
        """The loaded model with room for so many tokens."""
        values = {"context_size": max(4096, cells), "speculation": speculation}
        parallel = Concurrency(streams, streams)
        own = self.settings.model_copy(update=values)
        engine = Engine.load(self.model, own, parallel, _ignore)
        try:
            for _ in engine.warm_up():
                pass
            yield engine
        finally:
            engine.close()


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the tables."""
    plan = _plan(arguments)
    print(f"{machine()}; llama-cpp-python {version('llama-cpp-python')}")
    for device in gpus() or ():
        print(f"{device.name}: {device.description}, {device.free / GIB:.1f} GiB free")
    if not gpus():
        print("no GPU: llama.cpp computes on the CPU")
    print(f"model {plan.model.name}, {plan.model.stat().st_size / 1e6:,.1f} MB", flush=True)
    tables: dict[str, Callable[[Plan], str]] = {
        "prompts and answers": streams_table,
        "restoring against computing": restore_table,
        "speculation": speculation_table,
        "what waiting costs": waiting_table,
    }
    for title, table in tables.items():
        print(f"\n## {title}\n\n{table(plan)}", flush=True)
    return 0


def streams_table(plan: Plan) -> str:
    """Tokens per second of prompts and of answers, for several streams at once."""
    rows: list[list[str]] = []
    for count in plan.streams:
        with plan.engine(count * (plan.prompt + plan.answer + 1), count) as engine:
            jobs = [_job(plan.prompt, seed) for seed in range(count)]
            reading = _seconds(engine, partial(_read, engine, jobs))
            writing = _seconds(engine, partial(_write, engine, jobs, plan.answer))
            tokens = sum(job.generated for job in jobs)
            rows.append(
                [
                    str(count),
                    f"{count * plan.prompt / reading:,.0f}",
                    f"{tokens / writing:,.0f}",
                    f"{tokens / writing / count:,.1f}",
                ]
            )
    header = ("streams", "prompt tokens/s", "answer tokens/s", "each")
    return markdown(header, rows)


def restore_table(plan: Plan) -> str:
    """The time to read a prompt, and to bring its state back from host memory."""
    rows: list[list[str]] = []
    for length in plan.lengths:
        with plan.engine(length + 64) as engine:
            job = _job(length, 1)
            reading = _seconds(engine, partial(_read, engine, [job]))
            engine.scheduler.release(job)
            sequence = engine.scheduler.pool.sequences[0]
            save = partial(engine.context.save, sequence.id, partial=False)
            saving, state = _seconds(engine, save), save()
            engine.scheduler.pool.mirror.clear(sequence)
            restore = partial(engine.context.restore, sequence.id, state, partial=False)
            back = _seconds(engine, restore)
            rows.append(
                [
                    f"{length:,}",
                    f"{len(state) / 1e6:,.1f} MB",
                    milliseconds(reading),
                    milliseconds(saving),
                    milliseconds(back),
                    ratio(back, reading),
                ]
            )
    header = ("tokens", "state", "computed in", "saved in", "restored in", "restored/computed")
    return markdown(header, rows)


def speculation_table(plan: Plan) -> str:
    """One stream that repeats itself, with and without drafts from the conversation."""
    rows: list[list[str]] = []
    for mode in ("off", "lookup"):
        with plan.engine(4096, speculation=mode) as engine:
            prompt = [FIRST_TOKEN + i % 7 for i in range(plan.prompt)]
            job = Job(len(prompt), prompt, GREEDY, _ignore)
            _read(engine, [job])
            writing = _seconds(engine, partial(_write, engine, [job], 4 * plan.answer))
            rows.append(
                [
                    mode,
                    f"{job.generated / writing:,.0f}",
                    str(job.drafted_tokens),
                    str(job.accepted_tokens),
                ]
            )
    return markdown(("speculation", "answer tokens/s", "drafted", "accepted"), rows)


def waiting_table(plan: Plan) -> str:
    """The same batches, with a wait after each and with one at the end."""
    length = max(plan.lengths)
    rows: list[list[str]] = []
    with plan.engine(length + 64) as engine:
        sizes = {1, 32, min(CPU_CHUNK, engine.context.batch_size), engine.context.batch_size}
        for size in sorted(sizes):
            total = min(length, 64 * size) // size * size
            times: list[float] = []
            for waits in (False, True, False, True):
                work = partial(_decode_all, engine, total, size, waits=waits)
                times.append(_seconds(engine, work))
            late, each = min(times[::2]), min(times[1::2])
            rows.append(
                [str(size), f"{total / late:,.0f}", f"{total / each:,.0f}", ratio(each, late)]
            )
    header = ("tokens a batch", "one wait, tokens/s", "a wait each, tokens/s", "time")
    return markdown(header, rows)


def _decode_all(engine: Engine, total: int, size: int, *, waits: bool) -> None:
    """Decode one sequence in batches; no logits are read."""
    context = engine.context
    context.clear()
    tokens = _job(total, 2).tokens
    for start in range(0, total, size):
        context.decode([Span(0, start, tokens[start : start + size], wants_logits=False)])
        if waits:
            context.synchronize()


def _read(engine: Engine, jobs: Sequence[Job]) -> None:
    """Read the prompts of all jobs."""
    for job in jobs:
        engine.scheduler.queue.submit(job)
    while any(job.phase is not Phase.PARKED for job in jobs):
        engine.scheduler.step()


def _write(engine: Engine, jobs: Sequence[Job], tokens: int) -> None:
    """Write the answers of all jobs."""
    for job in jobs:
        engine.scheduler.start(job, tokens)
    while not engine.scheduler.queue.idle:
        engine.scheduler.step()


def _seconds(engine: Engine, work: Callable[[], object]) -> float:
    """How long some work takes until all of it is computed."""
    watch = engine.context.stopwatch
    started = watch.finished()
    work()
    return watch.finished() - started


def _ignore(*_: object) -> None:
    """Take an update that nobody needs."""


def _job(length: int, seed: int) -> Job:
    """A request with a random prompt; no two begin alike."""
    random = Random(seed)
    tokens = [random.randrange(FIRST_TOKEN, 1000) for _ in range(length)]
    return Job(length, tokens, GREEDY, _ignore)


def _plan(arguments: Sequence[str]) -> Plan:
    parser = argparse.ArgumentParser("python -m bench.gpu", description=__doc__)
    parser.add_argument("model", nargs="?", default=BUILTIN_NAME, help="a GGUF file, or a name")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a stream's prompt")
    parser.add_argument("--answer", type=int, default=32, help="tokens of a stream's answer")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--gpu-layers", type=int, default=-1, help="as llamacpp.gpu_layers")
    parser.add_argument("--threads", type=int, default=0, help="as llamacpp.threads")
    parser.add_argument("--n-batch", type=int, default=0, help="as llamacpp.n_batch")
    options = parser.parse_args(arguments)
    settings = LlamaCppSection(
        gpu_layers=options.gpu_layers,
        threads=options.threads,
        n_batch=options.n_batch,
        cache_ram_mib=0,
    )
    is_builtin = options.model == BUILTIN_NAME
    path = builtin_model() if is_builtin else locate_model(options.model, settings.models_dir)
    return Plan(path, settings, options.streams, options.prompt, options.answer, options.lengths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m bench.engine.overhead [MODEL]`: the cost of a token between llama.cpp and HTTP.

It is processor time on one thread, so that it holds on a busy machine too. Each line includes those
above it; the last is llama.cpp's server for the same tokens.
"""

import asyncio
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from time import process_time

from bench.engine.stream import Stream
from bench.peers import Load, llama_server, shepherd_server
from bench.table import machine, markdown

TOKENS = 256
REQUESTS = 8
CONTEXT = 2048
QUESTION = "who are you?"


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    from shepherd.models import builtin_model

    model = Path(arguments[0]) if arguments else builtin_model()
    decode, step = _inside(model)
    load = Load(model, CONTEXT, threads=1)
    rows = [
        ("llama_decode alone", decode),
        ("a step of the scheduler", step),
        ("the backend, with a callback", asyncio.run(_backend(model))),
        ("Shepherd's server", _server(lambda: _shepherd(load))),
        ("llama.cpp's server", _server(lambda: llama_server(load))),
    ]
    print(f"{machine()}; {model.name}\n")
    print(markdown(("to here", "ms a token"), [(what, f"{1000 * t:.3f}") for what, t in rows]))
    return 0


def _inside(model: Path) -> tuple[float, float]:
    """Seconds per token of llama.cpp alone, and with the scheduler around it."""
    from shepherd.backends.base import Concurrency
    from shepherd.backends.llamacpp.engine import Engine
    from shepherd.backends.llamacpp.native.context import Span
    from shepherd.backends.llamacpp.scheduling.job import Job
    from shepherd.config.llamacpp import LlamaCppSection
    from shepherd.sampling import DEFAULT_SAMPLING, Sampling

    settings = LlamaCppSection(threads=1, context_size=CONTEXT, speculation="off")
    engine = Engine.load(model, settings, Concurrency(), _ignore)
    prompt = list(range(50, 60))
    engine.context.decode([Span(0, 0, prompt, wants_logits=True)])
    started = process_time()
    for place in range(len(prompt), len(prompt) + TOKENS):
        engine.context.decode([Span(0, place, [50 + place], wants_logits=True)])
    decode = (process_time() - started) / TOKENS
    engine.context.clear()
    sampling = Sampling(temperature=0.0, ignore_eos=True).over(DEFAULT_SAMPLING)
    job = Job(len(prompt), prompt, sampling, receive=lambda _: None)
    engine.scheduler.submit(job)
    engine.scheduler.start(job, TOKENS)
    engine.scheduler.step()
    started, before = process_time(), job.generated
    while not engine.scheduler.idle():
        engine.scheduler.step()
    step = (process_time() - started) / max(1, job.generated - before)
    engine.close()
    return decode, step


async def _backend(model: Path) -> float:
    """Seconds per token up to the callback, on both threads."""
    from shepherd.backends.llamacpp import LlamaCppBackend
    from shepherd.config.llamacpp import LlamaCppSection
    from shepherd.messages import Message
    from shepherd.sampling import Sampling
    from shepherd.session import Session

    settings = LlamaCppSection(threads=1, context_size=CONTEXT, speculation="off")
    backend = await LlamaCppBackend.load(
        model, settings, Sampling(temperature=0.0, ignore_eos=True)
    )
    spent = tokens = 0.0
    for number in range(REQUESTS + 1):
        session = Session("")
        session.add(Message.user(f"{QUESTION} {number}"))
        started = process_time()
        generation = await backend.generate_from_session(session, _accept, TOKENS)
        if number:
            spent += process_time() - started
            tokens += generation.stats.completion_tokens
    await backend.aclose()
    return spent / tokens


def _ignore(_job: object, _update: object) -> None:
    """Ignore updates."""


def _accept(_event: object, _content: str, _name: str, _id: str) -> bool:
    return True


def _shepherd(load: Load) -> AbstractContextManager[str]:
    return shepherd_server(load, settings=["speculation=off"])


def _server(serve: Callable[[], AbstractContextManager[str]]) -> float:
    """Seconds per token of a server, as the difference between more and fewer requests."""
    (few, few_tokens), (many, many_tokens) = (_served(serve, n) for n in (2, 2 + REQUESTS))
    return (many - few) / (many_tokens - few_tokens)


def _served(serve: Callable[[], AbstractContextManager[str]], requests: int) -> tuple[float, int]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with serve() as url:
        tokens = sum(asyncio.run(_ask(url, number)) for number in range(requests))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, tokens


async def _ask(url: str, number: int) -> int:
    messages = [{"role": "user", "content": f"{QUESTION} {number}"}]
    body = {"messages": messages, "max_tokens": TOKENS, "ignore_eos": True}
    return (await Stream(url, body).run()).tokens


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

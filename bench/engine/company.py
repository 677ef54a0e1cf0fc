"""`python -m bench.engine.company [MODEL…]`: is the answer to a request always the same?

Asks questions at temperature 0: each one alone, eight together, each one again with the prompts in
the cache, and eight together after a restart. Prints how many answers equal the first ones, with
and without `llamacpp.deterministic`, and the processor time of a token. The models are
SmolLM2-135M-Instruct if it is installed, the built-in one, or those that are named.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.table import machine, markdown
from bench.weights import PUP, SMOLLM2, chosen_models, model_file
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.messages import Message
from shepherd.sampling import Sampling
from shepherd.session import Session

SETTINGS: Sequence[tuple[str, dict[str, object]]] = (
    ("default", {}),
    ("flash attention off", {"flash_attention": "off"}),
    ("deterministic", {"deterministic": True}),
)
HEADER = ("settings", "together", "again", "restarted", "ms alone", "ms together")
STREAMS = 8
_CONTEXT = 1024
_TOPICS = (
    "sheep dogs rivers bread clocks rain maps chess moons salt trains books birds glass bees "
    "roads music ships apples wolves"
)
_FORMS = (
    "Tell me about {}.",
    "Write two sentences about {} and the sea.",
    "What is strange about {}?",
    "List three facts on {}.",
)
QUESTIONS = [form.format(topic) for topic in _TOPICS.split() for form in _FORMS]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask of a model, and how."""

    model: Path
    questions: Sequence[str]
    tokens: int
    threads: int


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to all questions, and the processor time of one of their tokens in seconds."""

    texts: list[str]
    seconds: float


def main(arguments: Sequence[str]) -> int:
    """Print a table for each model."""
    options = _options(arguments)
    default = [SMOLLM2 if model_file(SMOLLM2) else PUP]
    print(f"{machine()}; {options.questions} questions, {options.tokens} tokens per answer")
    for name, path in chosen_models(options.models, default).items():
        plan = Plan(path, QUESTIONS[: options.questions], options.tokens, options.threads)
        rows = [
            (title, *asyncio.run(_compare(plan, changes)))
            for title, changes in SETTINGS
            if not options.only or title in options.only
        ]
        print(f"\n{name}:\n\n{markdown(HEADER, rows)}", flush=True)
    return 0


async def _compare(plan: Plan, changes: dict[str, object]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        settings = LlamaCppSection.model_validate(
            {
                "threads": plan.threads,
                "context_size": _CONTEXT * (1 if changes.get("deterministic") else STREAMS),
                **changes,
            },
        )
        cache = Path(folder)
        alone = await _run(plan, settings, 1, None)
        together = await _run(plan, settings, STREAMS, cache)
        backend = await _load(plan, settings, cache)
        try:
            restarted = await _ask(backend, plan, STREAMS)
            again = await _ask(backend, plan, 1)
        finally:
            await backend.aclose()
    equal = [
        f"{sum(a == b for a, b in zip(alone.texts, other.texts, strict=True))}"
        for other in (together, again, restarted)
    ]
    times = [f"{1000 * answers.seconds:.1f}" for answers in (alone, together)]
    return [*equal, *times]


async def _run(plan: Plan, settings: LlamaCppSection, streams: int, cache: Path | None) -> Answers:
    backend = await _load(plan, settings, cache)
    try:
        return await _ask(backend, plan, streams)
    finally:
        await backend.aclose()


async def _load(plan: Plan, settings: LlamaCppSection, cache: Path | None) -> LlamaCppBackend:
    return await LlamaCppBackend.load(
        plan.model, settings, Sampling(), parallel=STREAMS, cache=cache
    )


async def _ask(backend: LlamaCppBackend, plan: Plan, streams: int) -> Answers:
    """All answers; so many requests run at once."""
    texts: list[str] = []
    tokens, started = 0, time.process_time()
    for place in range(0, len(plan.questions), streams):
        group = plan.questions[place : place + streams]
        answers = await asyncio.gather(
            *(backend.generate_from_session(_session(q), _accept, plan.tokens) for q in group)
        )
        texts += [answer.message.content for answer in answers]
        tokens += sum(answer.stats.completion_tokens for answer in answers)
    return Answers(texts, (time.process_time() - started) / max(1, tokens))


def _session(question: str) -> Session:
    session = Session("You are a helpful assistant.", sampling=Sampling(temperature=0.0))
    session.add(Message.user(question))
    return session


def _accept(_event: object, _content: str, _name: str, _id: str) -> bool:
    return True


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.engine.company", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--threads", type=int, default=0)
    titles = [title for title, _ in SETTINGS]
    parser.add_argument("--only", action="append", choices=titles, help="measure only these")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the engine's tests share."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shepherd.backends.base import Concurrency, Generation
from shepherd.backends.inprocess.constraint import CompiledConstraint, Constraint
from shepherd.backends.inprocess.gbnf import add_gbnf
from shepherd.backends.inprocess.lark import Rules
from shepherd.backends.inprocess.matcher import compile_grammar, tokenizer_for
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.events import CallbackEvent, Event
from shepherd.messages import Message, ToolSpec
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.session import Session
from tests.flat_events import TEXT_KINDS, flat

PUP = builtin_model()
LONG = "The quick brown fox jumps over the lazy dog. " * 40
EXACT: dict[str, Any] = {"flash_attention": "off", "cache_type_k": "f32", "cache_type_v": "f32"}
"""Numbers in full width, so that batches of any shape agree."""
GREEDY = Sampling(temperature=0.0)
LIST = ToolSpec(
    "list_directory",
    "List a directory.",
    {"type": "object", "properties": {"path": {"type": "string"}}},
)


@dataclass
class Recorder:
    """A callback that keeps what it is told and says no at the event number `stop_at`."""

    stop_at: int = -1
    events: list[tuple[CallbackEvent, str, str]] = field(
        default_factory=list[tuple[CallbackEvent, str, str]]
    )

    def __call__(self, event: Event) -> bool:
        kind, content, name, _ = flat(event)
        self.events.append((kind, content, name))
        return len(self.events) - 1 != self.stop_at

    @property
    def text(self) -> str:
        return "".join(content for event, content, _ in self.events if event in TEXT_KINDS)

    def kinds(self) -> list[CallbackEvent]:
        return [event for event, _, _ in self.events]


def settings(**values: object) -> LlamaCppSection:
    """Settings for tests: one thread, since the machine has other work."""
    return LlamaCppSection.model_validate({"threads": 1, **values})


def held_to(grammar: str, vocab: Vocab) -> CompiledConstraint:
    """What holds an answer to a grammar in GBNF."""
    rules = Rules()
    text = rules.text(add_gbnf(rules, grammar))
    matcher = compile_grammar(text, tokenizer_for(vocab.token_bytes))
    return CompiledConstraint(Constraint(text), matcher)


@asynccontextmanager
async def loaded(
    path: Path = PUP,
    *,
    parallel: int | Concurrency = 1,
    cache: Path | None = None,
    **values: object,
) -> AsyncGenerator[LlamaCppBackend]:
    """A backend that is closed behind the block; it saves conversations in `cache`."""
    own = settings(**values)
    backend = await LlamaCppBackend.load(path, own, GREEDY, parallel=parallel, cache=cache)
    try:
        yield backend
    finally:
        await backend.aclose()


def conversation(*prompts: str, tools: bool = False) -> Session:
    """A session whose last messages are these, all from the user."""
    session = Session("You are Shepherd.", tools=[LIST] if tools else [])
    for prompt in prompts:
        session.add(Message.user(prompt))
    return session


async def ask(
    backend: LlamaCppBackend,
    session: Session,
    prompt: str,
    recorder: Recorder | None = None,
    max_tokens: int = 0,
) -> str:
    """One turn without tools; the answer goes into the session."""
    session.add(Message.user(prompt))
    recorder = recorder or Recorder()
    generation = await backend.generate_from_session(session, recorder, max_tokens)
    session.add(generation.message)
    return generation.message.content


async def generate(
    backend: LlamaCppBackend,
    session: Session,
    recorder: Recorder | None = None,
    max_tokens: int = 0,
) -> Generation:
    return await backend.generate_from_session(session, recorder or Recorder(), max_tokens)

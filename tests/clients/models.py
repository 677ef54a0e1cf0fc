"""Models whose answers a test decides, with the prompts that they got."""

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import gguf
from msgspec.structs import replace

from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.script import Script, parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.events import EventCallback, ignore_events
from shepherd.messages import Message, Role
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.session import Session
from tests.backends.llamacpp.tiny import write_llama

CONTEXT = 200_000
ENGINE_CONTEXT = 65_536

Answer = Callable[[Session], str]
"""Writes the script of one generation, in the language of the scripted backend."""


def say(text: str) -> str:
    """The script of a text."""
    return f"text: {json.dumps(text)}\n"


def call(name: str, /, **arguments: Any) -> str:
    """The script of a call."""
    return f"call: {name} {json.dumps(arguments)}\n"


def results(session: Session) -> list[str]:
    """The results of tools since the user's last message."""
    texts: list[str] = []
    for message in reversed(session.messages):
        if message.role is Role.USER:
            break
        if message.role is Role.TOOL:
            texts.insert(0, message.plain_text)
    return texts


@dataclass(frozen=True)
class Request:
    """A prompt that the model got, and how much of it was cached."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    prompt_tokens: int
    cached_tokens: int


class ScriptPlayer(ScriptedBackend):
    """Plays a script; the ids of its calls contain a number."""

    def __init__(self, script: Script, number: int) -> None:
        super().__init__(script)
        self._played = number


class PlayedPrefilled(Prefilled):
    """The script of one request, with its prompt in the engine's cache if there is an engine."""

    def __init__(self, player: ScriptedBackend, script: Prefilled, engine: Prefilled) -> None:
        self.player = player
        self.script = script
        self.prompt_tokens = engine.prompt_tokens
        self.cached_tokens = engine.cached_tokens
        self._stack = AsyncExitStack()
        for handle in {id(script): script, id(engine): engine}.values():
            self._stack.push_async_exit(handle)

    def release(self) -> None:
        self.script.release()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(exc_type, exc, traceback)


class PlayedModel(Backend):
    """Answers what a function says to the session.

    With an engine, the prompts go through its KV cache; what the model says does not.
    """

    def __init__(self, answer: Answer, engine: LlamaCppBackend | None = None) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self._engine = engine
        self._embedding = ScriptedBackend(parse_script(""))

    @property
    def info(self) -> ModelInfo:
        size = ENGINE_CONTEXT if self._engine else CONTEXT
        embedder = self._embedding.info.embedder
        return ModelInfo("played", "played", size, raw_prompts=True, embedder=embedder)

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        script = parse_script(f"context: {CONTEXT}\n{self.answer(session)}")
        player = ScriptPlayer(script, len(self.requests))
        played = await player.prefill_session(session, callback)
        prompt = played
        if self._engine is not None:
            plain = replace(session, tool_choice=None, output_format=None)
            prompt = await self._engine.prefill_session(plain, ignore_events)
        self.requests.append(
            Request(
                session.system_message,
                tuple(session.messages),
                tuple(tool.name for tool in session.tools),
                prompt.prompt_tokens,
                prompt.cached_tokens,
            )
        )
        return PlayedPrefilled(player, played, prompt)

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        assert isinstance(prefilled, PlayedPrefilled)
        end = await prefilled.player.generate_from_prefilled(prefilled.script, callback, max_tokens)
        counts = {
            "prompt_tokens": prefilled.prompt_tokens,
            "cached_tokens": prefilled.cached_tokens,
        }
        return replace(end, stats=replace(end.stats, **counts))

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        return await self._embedding.count_message_tokens(session, message)

    async def aclose(self) -> None:
        if self._engine is not None:
            await self._engine.aclose()


async def cached_model(answer: Answer, directory: Path) -> PlayedModel:
    """A model with a real KV cache; `directory` is for its file."""
    settings = LlamaCppSection(threads=2, context_size=ENGINE_CONTEXT)
    return PlayedModel(
        answer, await LlamaCppBackend.load(_small_model(directory), settings, Sampling())
    )


def _small_model(directory: Path) -> Path:
    """A model of one layer with the vocabulary and the template of the built-in one."""
    fields = gguf.GGUFReader(builtin_model()).fields
    tokenizer = {
        name.removeprefix("tokenizer.ggml."): field.contents() for name, field in fields.items()
    }

    def vocabulary(writer: gguf.GGUFWriter) -> int:
        writer.add_tokenizer_model(tokenizer["model"])
        writer.add_tokenizer_pre(tokenizer["pre"])
        writer.add_token_list(tokenizer["tokens"])
        writer.add_token_types(tokenizer["token_type"])
        writer.add_token_merges(tokenizer["merges"])
        writer.add_eos_token_id(tokenizer["eos_token_id"])
        writer.add_add_bos_token(False)
        return len(tokenizer["tokens"])

    template = fields["tokenizer.chat_template"].contents()
    return write_llama(
        directory / "small.gguf",
        template=template,
        context=ENGINE_CONTEXT,
        vocabulary=vocabulary,
        layers=1,
    )

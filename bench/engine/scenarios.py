"""The scenarios on one server: each returns numbers by name."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

from bench.engine.stream import Answer, Stream

STREAMS = 8
QUESTIONS = (
    "hello", "who are you?", "what can you do?", "thanks", "list the files here",
    "my name is Ada", "what is my name?", "what is the capital of France?", "tell me a joke",
    "goodbye", "are you still there?",
)  # fmt: skip
ANSWER_TOKENS = 24
LONG_ANSWER = 400


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of work; `rules` make a prefix of about ten tokens each."""

    rules: int = 420
    turns: int = 10
    alternations: int = 3
    decode_tokens: int = 256
    decode_runs: int = 3


@dataclass
class Bench:
    """One server in the measurement; `endless` are the options for endless answers."""

    url: str
    sizes: Sizes
    endless: Mapping[str, Any]
    results: dict[str, float] = field(default_factory=dict[str, float])

    async def ask(self, text: str, tokens: int) -> Answer:
        """An answer of exactly this many tokens to one question."""
        return await Stream(self.url, self._body(text, tokens)).run()

    async def one_stream(self) -> None:
        """Tokens per second of whole requests with short prompts, one after the other."""
        await self.ask("hello", 4)
        answers = [
            await self.ask(QUESTIONS[n], self.sizes.decode_tokens)
            for n in range(self.sizes.decode_runs)
        ]
        seconds = sum(answer.ended - answer.started for answer in answers)
        self.results["decode"] = sum(answer.tokens for answer in answers) / seconds

    async def streams_at_once(self) -> None:
        """Tokens per second of all streams together, from the first request to the last token."""
        tokens = self.sizes.decode_tokens
        await asyncio.gather(*(self.ask(question, 2) for question in QUESTIONS[:STREAMS]))
        answers = await asyncio.gather(*(self.ask(q, tokens) for q in QUESTIONS[:STREAMS]))
        seconds = max(a.ended for a in answers) - min(a.started for a in answers)
        self.results["streams"] = sum(a.tokens for a in answers) / seconds

    async def long_prompt_beside_streams(self) -> None:
        """The longest silence within an answer while a long prompt is read."""
        async with self._running(STREAMS - 1) as streams:
            conversation = Conversation(self, system_text("beside", self.sizes.rules))
            before = perf_counter()
            answer = await conversation.ask(QUESTIONS[0])
            first = before + answer.first_token
            gaps = [g for s in streams for g in s.answer().gaps(before, first)]
        self.results["gap"] = max(gaps)
        self.results["beside"] = answer.first_token

    @asynccontextmanager
    async def _running(self, count: int) -> AsyncGenerator[list[Stream]]:
        """Streams that run during the context, as a list of all that were started."""
        streams: list[Stream] = []
        running = [asyncio.create_task(self._go_on(streams, n)) for n in range(count)]
        try:
            while len(streams) < count or not all(s.begun for s in streams[:count]):
                await asyncio.sleep(0.01)
                if failed := [task for task in running if task.done()]:
                    await failed[0]
            yield streams
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _go_on(self, streams: list[Stream], number: int) -> None:
        while True:
            stream = Stream(self.url, self._body(QUESTIONS[number], LONG_ANSWER))
            streams.append(stream)
            await stream.run()

    def _body(self, text: str, tokens: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": text}]
        return {"messages": messages, "max_tokens": tokens, **self.endless}


class Conversation:
    """A conversation behind a long system message; the answers become its history."""

    def __init__(self, bench: Bench, system: str) -> None:
        self._bench = bench
        self._messages = [{"role": "system", "content": system}]
        self.answers: list[Answer] = []

    async def ask(self, question: str) -> Answer:
        """The next turn."""
        self._messages.append({"role": "user", "content": question})
        answer = await self._send(self._messages)
        self._messages.append({"role": "assistant", "content": answer.text})
        self.answers.append(answer)
        return answer

    async def again_cold(self) -> Answer:
        """Repeat the last turn with a new word in front, so that no cache has it."""
        system, *rest = self._messages[:-1]
        changed = {"role": "system", "content": f"Cold. {system['content']}"}
        return await self._send([changed, *rest])

    def moved_to(self, bench: Bench) -> "Conversation":
        """The same conversation on another server."""
        moved = Conversation(bench, "")
        moved._messages = list(self._messages)
        return moved

    async def _send(self, messages: Sequence[Mapping[str, str]]) -> Answer:
        body = {"messages": messages, "max_tokens": ANSWER_TOKENS}
        return await Stream(self._bench.url, body).run()


def system_text(name: str, rules: int) -> str:
    """A system message of this many short rules; another name changes its beginning."""
    return " ".join(f"{name} rule{i} applies;" for i in range(rules))


async def ten_turns(bench: Bench) -> Conversation:
    """First token cold, warm turn after turn, and cold again at the end."""
    conversation = Conversation(bench, system_text("first", bench.sizes.rules))
    for number in range(bench.sizes.turns):
        await conversation.ask(QUESTIONS[number])
    times = [answer.first_token for answer in conversation.answers]
    cold = await conversation.again_cold()
    bench.results |= {
        "prefix": float(conversation.answers[0].prompt_tokens),
        "cold 1": times[0],
        "warm": median(times[1:]),
        "warm 10": times[-1],
        "cold 10": cold.first_token,
        "cold/warm 10": cold.first_token / times[-1],
    }
    return conversation


async def two_alternate(bench: Bench, first: Conversation) -> None:
    """Another conversation begins; then both alternate."""
    second = Conversation(bench, system_text("second", bench.sizes.rules))
    await second.ask(QUESTIONS[0])
    answers = [
        await conversation.ask(QUESTIONS[number])
        for number in range(bench.sizes.alternations)
        for conversation in (first, second)
    ]
    bench.results["alternate"] = median(answer.first_token for answer in answers)
    bench.results["alternate worst"] = max(answer.first_token for answer in answers)
    if all(answer.prompt_tokens for answer in answers):
        shares = [answer.cached_tokens / answer.prompt_tokens for answer in answers]
        bench.results["alternate cached"] = min(shares)


async def before_restart(bench: Bench, *, batches: bool) -> Conversation:
    """All scenarios except the last; returns the conversation for after the restart."""
    await bench.one_stream()
    await bench.streams_at_once()
    if batches:
        await bench.long_prompt_beside_streams()
    conversation = await ten_turns(bench)
    await two_alternate(bench, conversation)
    return conversation


async def after_restart(bench: Bench, conversation: Conversation) -> None:
    """Continue the conversation on a server that was started again."""
    await bench.ask("hello", 2)
    answer = await conversation.moved_to(bench).ask(QUESTIONS[-1])
    bench.results["restart"] = answer.first_token

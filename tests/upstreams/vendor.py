"""A vendor's API played over real HTTP: strict about requests, counts tokens in its own way.

What it says depends on the question alone: `Q7` in the last message of the user asks for one or two
calls, or for none; once their results are there the answer is `A7`.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, cast

from shepherd.messages import JsonObject
from tests.backends.api.upstream import Received, Reply

TOOL = "read_file"
QUESTION = re.compile(r"\bQ(\d+)")
MARKS = re.compile(r"\b(?:Q\d+|A\d+|R\d+-\d)\b")
ROOM = 64
"""The tokens of an answer, for which there must be room behind the prompt."""


@dataclass(frozen=True)
class Said:
    """What one side says in a request; calls are (id, name), results (id, name, text)."""

    role: str
    texts: list[str] = field(default_factory=list[str])
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    results: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


@dataclass(frozen=True)
class Answer:
    """What the model says: a thought, a text, and the arguments of its calls."""

    thought: str
    text: str
    calls: tuple[JsonObject, ...] = ()


class RefusedError(Exception):
    """The request is one that the vendor answers with 400."""


@dataclass
class Vendor(ABC):
    """Answers requests; `refused` are those that were invalid, `overflows` those too long.

    `afresh` counts those that do not begin with all of the last one, which a cache of prompts has.
    A prompt takes `ratio` tokens per character. Each `thorough`-th request, and the first, is also
    held against the types of the vendor's own SDK; 0 = none.
    """

    limit: int = 4096
    ratio: float = 0.3
    thorough: int = 1
    requests: int = 0
    overflows: int = 0
    afresh: int = 0
    bytes: int = 0
    messages: int = 0
    refused: list[str] = field(default_factory=list[str])
    texts: list[str] = field(default_factory=list[str])
    heard: list[Said] = field(default_factory=list[Said])

    kind: ClassVar[str]
    model: ClassVar[str]
    alternates: ClassVar[bool] = True

    def __call__(self, request: Received) -> Reply:
        if not self.asks(request):
            return self.other(request)
        self.requests += 1
        self.bytes += len(request.body)
        body = request.json
        try:
            said = self.said(body)
            self.messages += len(said)
            self._check(request, body, said)
        except (RefusedError, AssertionError, KeyError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            self.refused.append(f"{why}\n{json.dumps(body)[-3000:]}")
            return Reply({"error": {"message": f"invalid: {why}"}}, status=400)
        self.texts = strings(body)
        prompt = 3 + round(self.ratio * sum(map(len, self.texts)))
        full = self.overflow(body, prompt)
        if full is not None:
            self.overflows += 1
            return full
        self.afresh += said[: len(self.heard)] != self.heard
        self.heard = said
        return self.stream(answer_to(said), prompt)

    @property
    def marks(self) -> list[str]:
        """The marks of questions, results and answers in the last request, in order."""
        return MARKS.findall("\n".join(self.texts))

    @abstractmethod
    def asks(self, request: Received) -> bool:
        """Whether the request asks for an answer."""

    @abstractmethod
    def other(self, request: Received) -> Reply:
        """The answer to another request: the models, a model."""

    @abstractmethod
    def said(self, body: JsonObject) -> list[Said]:
        """The conversation, who says what; raises what a wrong shape raises."""

    @abstractmethod
    def own(self, body: JsonObject) -> None:
        """Refuse what only this vendor refuses, above all wrong signatures."""

    @abstractmethod
    def official(self, request: Received) -> None:
        """Hold the request against the SDK's types."""

    @abstractmethod
    def overflow(self, body: JsonObject, prompt: int) -> Reply | None:
        """The vendor's words for a prompt that does not fit, None if it does."""

    @abstractmethod
    def stream(self, answer: Answer, prompt: int) -> Reply:
        """The answer as the vendor streams it."""

    def sign(self, text: str) -> str:
        """What proves that the vendor said so; Base64, as Google's are."""
        sign = f"SIG-{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        return sign + "0" * (-len(sign) % 4)

    def _check(self, request: Received, body: JsonObject, said: list[Said]) -> None:
        check_turns(said, alternates=self.alternates)
        foreign = set(re.findall(r"SIG-([a-z-]+)-", request.body.decode())) - {self.kind}
        require(not foreign, f"signatures of {foreign}")
        self.own(body)
        if self.thorough and self.requests % self.thorough in (1, 0):
            self.official(request)


def require(holds: object, why: str) -> None:
    """Refuse the request unless `holds`."""
    if not holds:
        raise RefusedError(why)


def check_turns(said: Sequence[Said], *, alternates: bool) -> None:
    """What all vendors ask for: who begins and ends, calls answered at once, nothing empty."""
    require(said and said[0].role == "user", "the user must begin")
    require(said[-1].role == "user", "the user must end")
    for one in said:
        require(one.calls or one.results or one.texts, "an empty message")
        require(all(text.strip() for text in one.texts), "an empty text")
        require(all(text.strip() for _, _, text in one.results), "an empty result")
    if alternates:
        require(all(a.role != b.role for a, b in pairwise(said)), "roles must alternate")
    waiting: list[tuple[str, str]] = []
    for one in said:
        got = [(key, name) for key, name, _ in one.results]
        require(got == waiting, f"calls {waiting} and results {got}")
        waiting = one.calls
    require(not waiting, "calls without results")
    ids = [key for one in said for key, _ in one.calls if key]
    require(len(ids) == len(set(ids)), "an id twice")


def answer_to(said: Sequence[Said]) -> Answer:
    """What the model says to this conversation."""
    numbers = [n for one in said for text in one.texts for n in QUESTION.findall(text)]
    number = int(numbers[-1]) if numbers else 0
    thought = f"Thought of {number}: I look, then I tell."
    if said[-1].results or number % 7 == 3:
        return Answer(thought, f"A{number} is that all is well, Köln 日本. " + "So it is. " * 8)
    calls = tuple({"path": f"file-{number}-{n}"} for n in range(1 + number % 2))
    return Answer(thought, "I look." if number % 3 else "", calls)


def strings(value: Any) -> list[str]:
    """All texts in a body, wherever they are."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        parts = cast(JsonObject, value).values()
        return [text for inner in parts for text in strings(inner)]
    if isinstance(value, list):
        return [text for inner in cast(list[Any], value) for text in strings(inner)]
    return []

"""Estimates tokens, and improves with every answer's usage."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from shepherd.backends.api.estimate.features import Features, Measure, added
from shepherd.backends.api.estimate.priors import DEFAULT, FamilyPrior
from shepherd.backends.api.estimate.ratios import Ratios
from shepherd.backends.api.history.schemas import PerToolList
from shepherd.messages import Message, ToolSpec
from shepherd.session import Session

K = TypeVar("K")
V = TypeVar("V")

MAX_PARTS = 4096
"""The maximum of remembered messages, unless one conversation has more; texts are not kept."""

MAX_PROMPTS = 512
"""Prompts whose exact size is remembered."""

RECENT = 10
"""The error is the mean over this number of recent calls."""

KNOWN_DOUBT = 0.25
"""The weight of text that was counted before, relative to new text, when an error is divided."""


@dataclass(slots=True)
class _Part:
    """A message, or everything before the first; `tokens` is its share of a usage."""

    features: Features
    tokens: float | None = None


class TokenEstimator:
    """Counts the tokens of one model's prompts, without its tokenizer.

    An earlier usage is exact for the same beginning of a conversation. When messages are evicted,
    the others keep their shares of it. Only text that was never sent is estimated, by ratios that
    every usage corrects. Messages are recognised by their content, so one estimator serves many
    conversations. The work is proportional to new text and to the number of messages.
    """

    def __init__(self, prior: FamilyPrior = DEFAULT) -> None:
        self._measure = Measure(prior)
        self._ratios = Ratios()
        self._parts: OrderedDict[int, _Part] = OrderedDict()
        self._prompts: OrderedDict[int, int] = OrderedDict()
        self._tools = PerToolList(_tool_key)
        self._errors: deque[float] = deque(maxlen=RECENT)
        self._max_parts = MAX_PARTS

    @property
    def error(self) -> float | None:
        """The mean relative error of the last estimates of whole prompts; None before the first."""
        return sum(self._errors) / len(self._errors) if self._errors else None

    @property
    def characters_read(self) -> int:
        """The number of characters that were read since the start."""
        return self._measure.characters_read

    @property
    def remembered(self) -> int:
        """Entries in memory: messages and prompts."""
        return len(self._parts) + len(self._prompts)

    def estimate(self, session: Session) -> int:
        """The tokens of the session's prompt."""
        parts, marks = self._walk(session)
        covered, exact = self._covered(marks)
        return round(exact + sum(map(self._tokens, parts[covered:])))

    def estimate_message(self, session: Session, message: Message) -> int:
        """The tokens that `message` takes in the session's prompt; at least 1."""
        return max(1, round(self._tokens(self._part(message)[1])))

    def learn(self, session: Session, prompt_tokens: int) -> None:
        """Learn the count of the session as it was sent; a repetition has no effect.

        The count of an overflow error can be learned too. Call this before anything is added to the
        session.
        """
        if prompt_tokens <= 0:
            return
        parts, marks = self._walk(session)
        covered, exact = self._covered(marks)
        if covered == len(parts) and exact == prompt_tokens:
            self._errors.append(0.0)
            return
        guesses = [self._tokens(part) for part in parts]
        guess = exact + sum(guesses[covered:])
        self._errors.append(abs(guess - prompt_tokens) / prompt_tokens)
        if exact >= prompt_tokens:
            covered, exact = 0, 0
        new, tokens = parts[covered:], prompt_tokens - exact
        if new:
            self._ratios.learn(added(part.features for part in new), tokens)
            self._share(new, tokens)
        _keep(self._prompts, marks[-1], prompt_tokens, MAX_PROMPTS)

    def _share(self, parts: Sequence[_Part], tokens: int) -> None:
        """Divide `tokens` among `parts`: as before, and the remainder mostly to the new ones."""
        guesses = [self._tokens(part) for part in parts]
        doubts = [
            guess if part.tokens is None else guess * KNOWN_DOUBT
            for part, guess in zip(parts, guesses, strict=True)
        ]
        surprise, doubt = tokens - sum(guesses), max(1e-9, sum(doubts))
        for part, guess, own in zip(parts, guesses, doubts, strict=True):
            part.tokens = max(0.0, guess + surprise * own / doubt)

    def _tokens(self, part: _Part) -> float:
        return self._ratios.predict(part.features) if part.tokens is None else part.tokens

    def _covered(self, marks: Sequence[int]) -> tuple[int, int]:
        """The number of parts that an earlier usage covers, and that usage."""
        for index in range(len(marks) - 1, -1, -1):
            tokens = self._prompts.get(marks[index])
            if tokens is not None:
                return index + 1, tokens
        return 0, 0

    def _walk(self, session: Session) -> tuple[list[_Part], list[int]]:
        """The prompt's parts, and for each a hash of the prompt up to it."""
        self._max_parts = max(MAX_PARTS, 2 * len(session.messages))
        mark, part = self._beginning(session)
        parts, marks = [part], [mark]
        for message in session.messages:
            key, part = self._part(message)
            mark = hash((mark, key))
            parts.append(part)
            marks.append(mark)
        return parts, marks

    def _part(self, message: Message) -> tuple[int, _Part]:
        key = _message_key(message)
        part = self._parts.get(key)
        if part is None:
            part = _Part(self._measure.message(message))
        _keep(self._parts, key, part, self._max_parts)
        return key, part

    def _beginning(self, session: Session) -> tuple[int, _Part]:
        key = hash((session.system_message, self._tools.of(session.tools)))
        part = self._parts.get(key)
        if part is None:
            part = _Part(self._measure.prompt(session.system_message, session.tools))
        _keep(self._parts, key, part, self._max_parts)
        return key, part


def _tool_key(tools: Sequence[ToolSpec]) -> int:
    """A key for a list of tools, by their content."""
    return hash(tuple(map(repr, tools)))


def _message_key(message: Message) -> int:
    """A key for a message; cheap, because Python caches the hashes of texts."""
    calls = [
        (c.id, c.name, tuple((k, v if isinstance(v, str) else 0) for k, v in c.arguments.items()))
        for c in message.tool_calls
    ]
    texts = (message.content, message.reasoning, message.tool_call_id, message.name)
    return hash((message.role, *texts, *calls, message.images))


def _keep(store: OrderedDict[K, V], key: K, value: V, capacity: int) -> None:
    """Put `value` into a store that drops the least recently used entry."""
    store[key] = value
    store.move_to_end(key)
    while len(store) > capacity:
        store.popitem(last=False)

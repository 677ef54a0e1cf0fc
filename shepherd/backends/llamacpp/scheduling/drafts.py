"""Drafts of the next tokens of an answer, and whether they pay off."""

import json
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from msgspec import Struct

from shepherd.backends.llamacpp.native.context import RecentLine
from shepherd.backends.llamacpp.native.devices import CPU_LIMITS
from shepherd.backends.llamacpp.native.vocab import Vocab

MARGIN = 1.05
"""A draft must promise an increase of the speed by this factor."""

_LEARNING_RATE, _SLOW_LEARNING = 0.2, 0.02
"""The weight of one token in the acceptance rate of a request, and in that of all requests."""

_MAX_RATE = 0.999
"""The sum over a draft divides by one minus the rate."""

_COST_LEARNING = 0.1
"""The weight of one batch in what is known of batches."""

_MIN_VARIANCE = 0.25
"""Of the sizes of batches. Below it a slope would be noise."""

_DECAY = 0.002
_OUTLIER = 4.0
"""A batch counts as at most so many times as long as expected: another program may have run."""

_MIN_SHARE = 0.02
"""A line through large batches can fall below nothing for small ones; this is the least."""


class AcceptanceRate:
    """The probability that the model accepts a drafted token, if it accepted those before it."""

    def __init__(self, prior: float, shared: "AcceptanceRate | None" = None) -> None:
        """`prior` is the value before any measurement.

        `shared` is the rate of all requests together; a request's own rate starts from it.
        """
        self.value: float = shared.value if shared else prior
        self._prior = prior
        self._shared = shared
        self._learning_rate = _LEARNING_RATE if shared else _SLOW_LEARNING

    def note(self, accepted: int, drafted: int) -> None:
        """Learn from a draft whose first `accepted` tokens were right."""
        # A moving average over single tokens. An accepted one counts as 1 and moves the value by
        # r * (1 - value); so many of them multiply the distance to 1 by (1 - r)**accepted. The
        # first wrong one counts as 0. Nothing is known of the tokens behind it.
        self.value = 1 - (1 - self.value) * (1 - self._learning_rate) ** accepted
        if accepted < drafted:
            self.value *= 1 - self._learning_rate
        if self._shared is not None:
            self._shared.note(accepted, drafted)

    def forget(self) -> None:
        """Move a little towards the prior, for a draft that was not tried."""
        self.value += _DECAY * (self._prior - self.value)

    def expected(self, length: int) -> float:
        """The expected number of accepted tokens in a draft of this length."""
        rate = min(self.value, _MAX_RATE)  # so that the division below is possible
        # rate + rate**2 + ... + rate**length: each token counts if all before it were accepted
        return rate * (1 - rate**length) / (1 - rate)


class BatchCosts(RecentLine):
    """The seconds that a batch takes, by its tokens.

    While all batches have the same size, the slope decays to its minimum, so that larger batches
    are tried again.
    """

    def __init__(self, token_share: float = CPU_LIMITS.token_share) -> None:
        """`token_share` is the assumed cost of a token before any measurement."""
        super().__init__(_COST_LEARNING)
        self._token_share = token_share
        self._token_seconds = 0.0
        """The cost of one more token."""

    def note(
        self, tokens: int, seconds: float, prompt_tokens: int = 0, prompt_seconds: float = 0.0
    ) -> None:
        """Learn from a batch without prompts, beside a step of a prompt as long as the last one.

        While nothing else is known, one more token costs as much as one more of a prompt.
        """
        is_first = not self.mean_seconds
        self.add(tokens, seconds if is_first else min(seconds, _OUTLIER * self.seconds(tokens)))
        least = self._token_share * self.mean_seconds
        if prompt_tokens > 1:  # of a short prompt, the most is what any batch takes
            least = max(0.0, prompt_seconds - self.mean_seconds) / (prompt_tokens - 1)
        if is_first:
            self._token_seconds = least
        elif self.variance > _MIN_VARIANCE:
            self._token_seconds = self.slope
        else:
            self._token_seconds += _DECAY * (least - self._token_seconds)

    def seconds(self, tokens: int) -> float:
        """The expected seconds of a batch; 0 before any measurement."""
        mean = self.mean_seconds
        return max(_MIN_SHARE * mean, mean + self._token_seconds * (tokens - self.mean_size))


class StepBudget:
    """The next batch as it grows with drafts, and what it is expected to give."""

    def __init__(self, costs: BatchCosts, answers: int) -> None:
        """Before any draft the batch has one token of each answer, and gives each another one."""
        self._costs = costs
        self._tokens = answers
        self._gain: float = answers
        self._draft_seconds = 0.0
        """What the draft model needs for the drafts so far."""

    def best_length(
        self, rate: AcceptanceRate, max_tokens: int, seconds_per_token: float = 0.0
    ) -> int:
        """How many tokens to draft for one request; 0 if a draft does not pay off.

        `seconds_per_token` is the time that the draft model needs for one token.
        """
        best_speed, length = 0.0, 0
        for count in range(1, max_tokens + 1):
            speed = self._speed(count, rate.expected(count), count * seconds_per_token)
            if speed <= best_speed:  # every further token gains less
                break
            best_speed, length = speed, count
        speed_without = self._speed(0, 0.0, 0.0)
        return length if best_speed > MARGIN * speed_without else 0

    def add(self, rate: AcceptanceRate, length: int, seconds_per_token: float = 0.0) -> None:
        """Add a draft to the batch."""
        self._tokens += length
        self._gain += rate.expected(length)
        self._draft_seconds += length * seconds_per_token

    def _speed(self, length: int, gain: float, seconds: float) -> float:
        """The tokens of answers per second, with a further draft of `length` that takes `seconds`.

        The draft is expected to give `gain` tokens.
        """
        total = self._costs.seconds(self._tokens + length) + self._draft_seconds + seconds
        return (self._gain + gain) / total if total > 0 else 0.0  # no batch is measured yet


MAX_INDEXED_TOKENS = 8192
"""Tokens that one search may add to the index, so that a long prompt delays no other request."""

MAX_DRAFT = 16
"""Tokens of one draft."""

_MAX_UNUSED = 8
"""Tokens of a draft that was not decoded, which are compared with the answer later."""

MAX_EARLIER_TOKENS = 16_384
"""Tokens that are kept, with their index in about 3 MB. Of more, the newest half stays."""

MAX_ESCAPED_TOKENS = 8192
"""Tokens at the end of a prompt that are escaped, in about 10 ms."""


class NgramIndex:
    """Finds earlier occurrences of the last `size` tokens of a growing list.

    Each token is added once; tokens that were added must not change.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._behind: dict[tuple[int, ...], int] = {}
        """The place behind the last occurrence of each n-gram."""
        self._next = size
        """The first place whose n-gram before it is not in the index."""

    def draft(self, tokens: Sequence[int], max_tokens: int) -> list[int]:
        """Tokens that may follow `tokens`, which must begin with those of the previous call.

        A repetition at the end is assumed to continue.
        """
        draft = self.follow(tokens, tokens, max_tokens)
        while 0 < len(draft) < max_tokens:  # the match is near the end, so its tokens come again
            draft += draft[: max_tokens - len(draft)]
        return draft

    def follow(self, text: Sequence[int], tokens: Sequence[int], max_tokens: int) -> list[int]:
        """The tokens of `text` behind the last place that equals the end of `tokens`.

        An index is either for `follow`, with the same `text` each time, or for `draft`.
        """
        self._add(text)
        start = self._behind.get(tuple(tokens[-self._size :]))
        return [] if start is None else list(text[start : start + max_tokens])

    def _add(self, tokens: Sequence[int]) -> None:
        """Index all n-grams but the last one, which is the key of the next search.

        At most MAX_INDEXED_TOKENS a call, so that a long text does not delay a step.
        """
        start = self._next
        stop = min(len(tokens), start + MAX_INDEXED_TOKENS)
        if stop <= start:
            return
        size = self._size
        self._next = stop
        if stop - start == 1:  # the usual case while an answer grows
            self._behind[tuple(tokens[start - size : start])] = start
            return
        # Column i has the i-th tokens of all n-grams, so that `zip` makes the n-grams in C.
        columns = (tokens[start - size + i : stop - size + i] for i in range(size))
        self._behind.update(zip(zip(*columns, strict=True), range(start, stop), strict=True))


class DraftKind(Enum):
    """The source of a draft: a long or short match in the conversation, one in earlier answers,
    or a small model.
    """

    LONG = auto()
    SHORT = auto()
    EARLIER = auto()
    MODEL = auto()


MATCH_LENGTHS = {DraftKind.LONG: 6, DraftKind.SHORT: 3, DraftKind.EARLIER: 6}
"""How many tokens must match, by kind."""

OWN_MATCHES = (DraftKind.LONG, DraftKind.SHORT)
"""The kinds of matches in a conversation, the better one first."""

PRIORS = {
    DraftKind.LONG: 0.8,
    DraftKind.SHORT: 0.4,
    DraftKind.EARLIER: 0.5,
    DraftKind.MODEL: 0.6,
}
"""The assumed acceptance rate before any measurement, by kind."""


class Draft(Struct, frozen=True):
    """Tokens that may follow."""

    tokens: list[int]
    kind: DraftKind


class Drafting:
    """The drafts of one request, and their acceptance rates."""

    def __init__(self, shared: Mapping[DraftKind, AcceptanceRate], *, lookup: bool) -> None:
        """`shared` has the rates of all requests together."""
        self.rates = {kind: AcceptanceRate(PRIORS[kind], known) for kind, known in shared.items()}
        kinds = OWN_MATCHES if lookup else ()
        self._indexes = {kind: NgramIndex(MATCH_LENGTHS[kind]) for kind in kinds}
        self._unused: Draft | None = None
        self._unused_at = 0

    def look_up(self, tokens: Sequence[int], max_tokens: int) -> Draft | None:
        """A draft from the longest match in the conversation; updates all indexes."""
        self._compare(tokens)
        drafts = [
            Draft(draft, kind)
            for kind, index in self._indexes.items()
            if (draft := index.draft(tokens, max_tokens))
        ]
        return drafts[0] if drafts else None

    def note_unused(self, draft: Draft, at: int) -> None:
        """Note a draft that is not decoded, to learn from the tokens that come after `at`."""
        if self._unused is None:  # else the one before it is not decided yet
            self._unused = Draft(draft.tokens[:_MAX_UNUSED], draft.kind)
            self._unused_at = at

    def _compare(self, tokens: Sequence[int]) -> None:
        """Learn from a draft that was not used, once enough of the answer is known."""
        if self._unused is None:
            return
        drafted, actual = self._unused.tokens, tokens[self._unused_at :]
        accepted = 0
        for expected, token in zip(drafted, actual, strict=False):
            if expected != token:
                break
            accepted += 1
        # A token differs, or all of the draft has been answered.
        is_decided = accepted < len(actual) or len(actual) >= len(drafted)
        if is_decided:
            self.rates[self._unused.kind].note(accepted, len(drafted))
            self._unused = None


class EarlierAnswers:
    """The newest answers of all requests, in memory only. Owner thread only."""

    def __init__(self, max_tokens: int = MAX_EARLIER_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._size = MATCH_LENGTHS[DraftKind.EARLIER]
        self._tokens: list[int] = []
        self._index = NgramIndex(self._size)

    def __len__(self) -> int:
        """The number of tokens that are kept."""
        return len(self._tokens)

    def add(self, tokens: Sequence[int], prompt_length: int, end: int) -> None:
        """Keep the answer behind a prompt. `end` is the token that ended it, or -1.

        The last tokens of the prompt are kept too, so that the answer's first token is found.
        """
        if len(tokens) == prompt_length:  # an empty answer
            return
        self._tokens += tokens[max(0, prompt_length - self._size) :]
        self._tokens.append(end)
        if len(self._tokens) > self._max_tokens:
            self._tokens = self._tokens[-self._max_tokens // 2 :]
            # An index has the places of tokens.
            self._index = NgramIndex(self._size)

    def look_up(self, tokens: Sequence[int], max_tokens: int) -> Draft | None:
        """What followed the last tokens of a conversation in the newest answer that has them."""
        draft = self._index.follow(self._tokens, tokens, max_tokens)
        return Draft(draft, DraftKind.EARLIER) if draft else None


class EscapedPrompt:
    """The end of a prompt as it is written in a JSON string, once the answer has a backslash."""

    def __init__(self, vocab: Vocab, prompt: Sequence[int]) -> None:
        self._vocab = vocab
        self._prompt = prompt
        self._tokens: list[int] | None = None
        self._indexes = {kind: NgramIndex(MATCH_LENGTHS[kind]) for kind in OWN_MATCHES}
        self._searched = len(prompt)
        """Up to here the tokens were searched for a backslash."""

    @property
    def is_open(self) -> bool:
        """Whether the answer had a backslash at the last search."""
        return self._tokens is not None

    def look_up(self, tokens: Sequence[int], max_tokens: int, kind: DraftKind) -> Draft | None:
        """What follows the last tokens in the escaped prompt.

        `tokens` are those of the prompt and the answer.
        """
        if self._tokens is None:
            if not self._has_escape(tokens):
                return None
            self._tokens = self._escaped()
        draft = self._indexes[kind].follow(self._tokens, tokens, max_tokens)
        return Draft(draft, kind) if draft else None

    def _has_escape(self, tokens: Sequence[int]) -> bool:
        """Whether a token has a backslash that was added since the last call."""
        start, self._searched = self._searched, len(tokens)
        return any(b"\\" in self._vocab.piece(tokens[place]) for place in range(start, len(tokens)))

    def _escaped(self) -> list[int]:
        """The tokens of the prompt's end inside a JSON string; negative ones are images."""
        pieces = (
            self._vocab.piece(token) for token in self._prompt[-MAX_ESCAPED_TOKENS:] if token >= 0
        )
        text = b"".join(pieces).decode(errors="replace")
        escaped = json.dumps(text, ensure_ascii=False)[1:-1]  # without its quotes
        return self._vocab.tokenize(escaped, parse_special=False)

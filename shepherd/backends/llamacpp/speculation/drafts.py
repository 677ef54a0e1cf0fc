"""Drafts of a request: tokens that may come next, decoded together with the next one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.speculation.payoff import AcceptanceRate

MAX_INDEXED_TOKENS = 8192
"""Tokens that one search may add to the index, so that a long prompt delays no other request."""

MAX_DRAFT = 16
"""Tokens of one draft."""

_MAX_UNUSED = 8

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
        self._next = size

    def draft(self, tokens: Sequence[int], max_tokens: int) -> list[int]:
        """Tokens that may follow `tokens`, which must begin with those of the previous call.

        A repetition at the end is assumed to continue.
        """
        self._add(tokens)
        start = self._behind.get(tuple(tokens[-self._size :]))
        if start is None:
            return []
        draft = list(tokens[start : start + max_tokens])
        while len(draft) < max_tokens:
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
        """Index all n-grams but the last one, which is the key of the next search."""
        start = self._next
        stop = min(len(tokens), start + MAX_INDEXED_TOKENS)
        if stop <= start:
            return
        size = self._size
        self._next = stop
        if stop - start == 1:
            self._behind[tuple(tokens[start - size : start])] = start
            return
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


@dataclass(frozen=True, slots=True)
class Draft:
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
        if self._unused is None:
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
        if accepted < len(actual) or len(actual) >= len(drafted):
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
        if len(tokens) == prompt_length:
            return
        self._tokens += tokens[max(0, prompt_length - self._size) :]
        self._tokens.append(end)
        if len(self._tokens) > self._max_tokens:
            self._tokens = self._tokens[-self._max_tokens // 2 :]
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
        self._end = len(prompt)

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
        start, self._end = self._end, len(tokens)
        return any(b"\\" in self._vocab.piece(tokens[place]) for place in range(start, self._end))

    def _escaped(self) -> list[int]:
        pieces = (
            self._vocab.piece(token) for token in self._prompt[-MAX_ESCAPED_TOKENS:] if token >= 0
        )
        text = b"".join(pieces).decode(errors="replace")
        escaped = json.dumps(text, ensure_ascii=False)[1:-1]
        return self._vocab.tokenize(escaped, parse_special=False)

"""Drafts from earlier answers: a request that is sent again, a phrase that a model often uses."""

from collections.abc import Sequence

from shepherd.backends.llamacpp.speculation.drafts import (
    MATCH_LENGTHS,
    Draft,
    DraftKind,
    NgramIndex,
)

MAX_TOKENS = 16_384
"""Tokens that are kept, with their index in about 3 MB. Of more, the newest half stays."""


class EarlierAnswers:
    """The newest answers of all requests, in memory only. Owner thread only."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
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

"""Drafts for text inside of JSON: an edit repeats a file's lines with escaped line ends."""

import json
from collections.abc import Sequence

from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.speculation.drafts import (
    MATCH_LENGTHS,
    OWN_MATCHES,
    Draft,
    DraftKind,
    NgramIndex,
)

MAX_TOKENS = 8192
"""Tokens at the end of a prompt that are escaped, in about 10 ms."""


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
        pieces = (self._vocab.piece(token) for token in self._prompt[-MAX_TOKENS:] if token >= 0)
        text = b"".join(pieces).decode(errors="replace")
        escaped = json.dumps(text, ensure_ascii=False)[1:-1]
        return self._vocab.tokenize(escaped, parse_special=False)

"""A grammar at work: which tokens an answer may go on with."""

import codecs
from typing import Any

from shepherd.backends.llamacpp.bindings import bindings, native_log
from shepherd.backends.llamacpp.candidates import Candidates
from shepherd.backends.llamacpp.grammar.gbnf import check_grammar
from shepherd.backends.llamacpp.vocab import Vocab
from shepherd.errors import InvalidRequestError


class GrammarGuard:
    """One grammar's state. `close` frees it.

    llama.cpp ends the process when a grammar accepts what it forbids: `accept` is only for tokens
    for which `allows` is true. Bytes that are no UTF-8 are never allowed: llama.cpp would take a
    quote for the rest of a character.
    """

    def __init__(self, grammar: str, vocab: Vocab) -> None:
        """Parse the grammar; raises InvalidRequestError with llama.cpp's reason."""
        self._lib = bindings()
        self._vocab = vocab
        self._partial = b""
        self._one = Candidates(1)
        native_log.take_errors()
        text = check_grammar(grammar).encode("utf-8", "replace")
        self.handle: Any = self._lib.llama_sampler_init_grammar(vocab.handle, text, b"root")
        if not self.handle:
            reasons = native_log.take_errors() or ["llama.cpp gives no reason"]
            raise InvalidRequestError(f"The grammar can't be used: {reasons[0][:300]}")

    def allows(self, token: int) -> bool:
        """Whether the token may come next."""
        if _decoded(self._partial + self._vocab.piece(token)) is None:
            return False
        self._one.only(token)
        self._one.apply(self.handle)
        return self._one.allowed

    def mask(self, candidates: Candidates) -> None:
        """Make all tokens impossible that may not come next."""
        candidates.apply(self.handle)
        fragments = self._vocab.fragments.items()
        whole = {t for t, piece in fragments if _decoded(self._partial + piece) is not None}
        if self._partial:
            candidates.ban_all_but(whole)
        else:
            candidates.ban(self._vocab.fragments.keys() - whole)

    def accept(self, token: int) -> None:
        """Go on behind a token that is allowed and does not end the answer."""
        self._partial = _decoded(self._partial + self._vocab.piece(token)) or b""
        self._lib.llama_sampler_accept(self.handle, token)

    def close(self) -> None:
        """Free the grammar; safe to call twice."""
        if self.handle:
            self._lib.llama_sampler_free(self.handle)
            self.handle = None


def check_with(vocab: Vocab, grammar: str) -> None:
    """Raise InvalidRequestError if llama.cpp does not take the grammar."""
    GrammarGuard(grammar, vocab).close()
    _ = vocab.fragments  # read here, for it takes a while the first time


def _decoded(data: bytes) -> bytes | None:
    """The beginning of a character with which `data` ends; None if it is not UTF-8."""
    try:
        rest = data[codecs.utf_8_decode(data, "strict", False)[1] :]
    except UnicodeDecodeError:
        return None
    return None if rest[:1] == b"\xed" and rest[1:2] >= b"\xa0" else rest  # half a surrogate pair

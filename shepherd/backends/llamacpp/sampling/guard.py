"""A grammar at work: which tokens an answer may go on with."""

import codecs
import copy
import re
from time import perf_counter
from typing import Any

from shepherd.backends.inprocess.grammar.constraint import Constraint
from shepherd.backends.inprocess.grammar.gbnf import check_grammar
from shepherd.backends.llamacpp.native.bindings import bindings, native_log
from shepherd.backends.llamacpp.native.stderr import captured_stderr
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.candidates import Candidates
from shepherd.errors import InvalidRequestError

MOST_SECONDS = 3.0
"""Of a grammar, before its speed is looked at."""

MOST_SECONDS_A_TOKEN = 0.1


class GrammarClock:
    """Measures what a grammar costs: an ambiguous one can hold up everybody's answers."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.tokens = 0
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += perf_counter() - self._since

    def check(self) -> None:
        """Count a token; raises InvalidRequestError when there is no sense in going on."""
        self.tokens += 1
        if self.seconds > max(MOST_SECONDS, self.tokens * MOST_SECONDS_A_TOKEN):
            raise InvalidRequestError("The grammar is too ambiguous: it takes too long to follow.")


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
        self.clock = GrammarClock()
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
        with self.clock:
            self._one.apply(self.handle)
        return self._one.allowed

    def mask(self, candidates: Candidates) -> None:
        """Make all tokens impossible that may not come next."""
        with self.clock:
            candidates.apply(self.handle)
        fragments = self._vocab.fragments.items()
        whole = {t for t, piece in fragments if _decoded(self._partial + piece) is not None}
        if self._partial:
            candidates.ban_all_but(whole)
        else:
            candidates.ban(self._vocab.fragments.keys() - whole)

    def accept(self, token: int) -> None:
        """Go on behind a token that is allowed and does not end the answer.

        Raises InvalidRequestError when the grammar has become too slow to go on with.
        """
        self._partial = _decoded(self._partial + self._vocab.piece(token)) or b""
        with self.clock:
            self._lib.llama_sampler_accept(self.handle, token)
        self.clock.check()

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        return any(self.allows(token) for token in self._vocab.ends[:1])

    def follow(self, text: str) -> bool:
        """Go on behind a text, if it is allowed; False if not, and then nothing more counts."""
        tokens = self._vocab.tokenize(text) if text else []
        if b"".join(map(self._vocab.piece, tokens)) != text.encode("utf-8", "replace"):
            return False
        for token in tokens:
            if not self.allows(token):
                return False
            self.accept(token)
        return True

    def clone(self) -> "GrammarGuard":
        """Another guard in the same state, to be closed on its own."""
        other = copy.copy(self)
        other.handle = self._lib.llama_sampler_clone(self.handle)
        other.clock = copy.copy(self.clock)
        return other

    def close(self) -> None:
        """Free the grammar; safe to call twice."""
        if self.handle:
            self._lib.llama_sampler_free(self.handle)
            self.handle = None


def check_constraint(constraint: Constraint, vocab: Vocab) -> None:
    """Raise InvalidRequestError if llama.cpp does not take the grammar."""
    if not constraint.foreign:
        GrammarGuard(constraint.grammar, vocab).close()
    else:
        with captured_stderr() as printed:
            try:
                GrammarGuard(constraint.grammar, vocab).close()
            except InvalidRequestError as error:
                raise _explained(error, printed()) from error
    _ = vocab.fragments  # read here, for it takes a while the first time


def _explained(error: InvalidRequestError, printed: str) -> InvalidRequestError:
    """The error with the reason that llama.cpp only prints."""
    found = re.search(r"error parsing grammar: (.*)", printed)
    reason = found.group(1)[:200] if found else ""
    return InvalidRequestError(f"The grammar can't be parsed: {reason}") if reason else error


def _decoded(data: bytes) -> bytes | None:
    """The beginning of a character with which `data` ends; None if it is not UTF-8."""
    try:
        rest = data[codecs.utf_8_decode(data, "strict", False)[1] :]
    except UnicodeDecodeError:
        return None
    return None if rest[:1] == b"\xed" and rest[1:2] >= b"\xa0" else rest  # half a surrogate pair

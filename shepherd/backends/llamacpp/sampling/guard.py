"""Grammars during generation: where a tool call begins, and which tokens may come next."""

import copy
from time import perf_counter
from typing import TYPE_CHECKING

from shepherd.backends.inprocess.grammar.matcher import check_matcher
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.candidates import Candidates
from shepherd.errors import InvalidRequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher
import codecs
from collections.abc import Collection

MAX_SECONDS = 3.0
"""Seconds that a grammar may take before its speed is checked."""

MAX_SECONDS_A_TOKEN = 0.1

_FENCES = ("```", "~~~")
_REASONING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<thinking>", "</thinking>"))


class GrammarClock:
    """Measures the time of a grammar: an ambiguous one can delay all answers."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.tokens = 0
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += perf_counter() - self._since

    def check(self) -> None:
        """Count a token; raises InvalidRequestError if the grammar is too slow."""
        self.tokens += 1
        if self.seconds > max(MAX_SECONDS, self.tokens * MAX_SECONDS_A_TOKEN):
            raise InvalidRequestError("The grammar is too ambiguous: it takes too long to follow.")


class GrammarGuard:
    """The state of a grammar in one answer.

    `mask` and `accept` raise InvalidRequestError if the grammar becomes too expensive.
    """

    def __init__(self, matcher: "LLMatcher", vocab: Vocab) -> None:
        """Copies the state of `matcher`."""
        self._matcher = matcher.deep_copy()
        self._vocab = vocab
        self.clock = GrammarClock()

    def allows(self, token: int) -> bool:
        """Whether the token may come next."""
        with self.clock:
            if self._vocab.is_eog(token):
                return self._matcher.is_accepting()
            return bool(self._vocab.piece(token)) and self._matcher.validate_tokens([token]) == 1

    def mask(self, candidates: Candidates) -> None:
        """Forbid all tokens that the grammar does not allow next."""
        with self.clock:
            allowed = self._matcher.compute_bitmask()
            check_matcher(self._matcher)
            ends = self._vocab.ends if self._matcher.is_accepting() else []
        candidates.keep(allowed, ends, banned=self._vocab.ends)

    def accept(self, token: int) -> None:
        """Advance by an allowed token that does not end the answer."""
        with self.clock:
            self._matcher.consume_token(token)
        check_matcher(self._matcher)
        self.clock.check()

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        return self._matcher.is_accepting()

    @property
    def ended(self) -> bool:
        """Whether the text must end here."""
        return self._matcher.is_stopped() and self._matcher.is_accepting()

    def forced(self) -> bytes:
        """The bytes that must come next; raises InvalidRequestError if that is too expensive."""
        with self.clock:
            forced: bytes = self._matcher.compute_ff_bytes()
        check_matcher(self._matcher)
        return forced

    def allowed_part(self, tokens: list[int]) -> list[int]:
        """The first of these tokens that the grammar allows one after the other."""
        with self.clock:
            return tokens[: self._matcher.validate_tokens(tokens)]

    def ends_after(self, tokens: list[int]) -> bool:
        """Whether the text must end after these allowed tokens."""
        with self.clock:
            self._matcher.consume_tokens(tokens)
            ended = self.ended
            self._matcher.rollback(len(tokens))
        return ended

    def follow(self, text: str) -> bool:
        """Advance by a text; False if it is not allowed, and the guard is then useless."""
        tokens = self._vocab.tokenize(text) if text else []
        if b"".join(map(self._vocab.piece, tokens)) != text.encode("utf-8", "replace"):
            return False
        for token in tokens:
            if not self.allows(token):
                return False
            self.accept(token)
        return True

    def clone(self) -> "GrammarGuard":
        """A copy in the same state."""
        other = GrammarGuard(self._matcher, self._vocab)
        other.clock = copy.copy(self.clock)
        return other


class CallDetector:
    """Detects a marker at the start of a line, outside of reasoning and code blocks."""

    def __init__(
        self,
        marker: str,
        opening: str = "",
        names: Collection[str] = (),
        *,
        reasoning: bool = False,
    ) -> None:
        """`opening` is the text between the marker and the tool's name, one of `names`."""
        self._marker = marker
        self._names = names
        self._opening = opening
        self._call_text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._reasoning = reasoning
        self._fenced = False
        self._line = ""

    def feed(self, piece: bytes) -> str | None:
        """Read more of the answer; returns the text after the marker, if it was found."""
        text = self._decoder.decode(piece)
        if "\n" not in text:
            return self._look(text)
        *lines, last = text.split("\n")
        for number, line in enumerate(lines):
            rest = self._look(line)
            if rest is not None:
                return "\n".join((rest, *lines[number + 1 :], last))
            if self._line.lstrip().startswith(_FENCES) and not self._reasoning:
                self._fenced = not self._fenced
            self._line = ""
        return self._look(last)

    def follow(self, text: str) -> None:
        """Read more of a call that has begun."""
        self._call_text += text

    @property
    def has_name(self) -> bool:
        """Whether the call with its text so far names its tool, which the model chooses."""
        text = self._call_text
        return text.startswith(self._opening) and '"' in text.removeprefix(self._opening)

    def names_unknown_tool(self, text: str) -> bool:
        """Whether the call with this text added names a tool that is not offered.

        The model chooses the tool: a grammar must not force another name.
        """
        call_text = self._call_text + text
        if not call_text.startswith(self._opening):
            return False
        name, quote, _ = call_text.removeprefix(self._opening).partition('"')
        return not any(n == name if quote else n.startswith(name) for n in self._names)

    def end_call(self) -> None:
        """Note the end of a call: the next one begins on another line."""
        self._line, self._call_text = ".", ""

    def _look(self, text: str) -> str | None:
        self._line += text
        start = self._line.lstrip()
        if self._reasoning:
            self._reasoning = not any(close in self._line for _, close in _REASONING)
        elif not self._fenced and start.startswith(self._marker):
            return start[len(self._marker) :]
        else:
            self._reasoning = start.startswith(tuple(begin for begin, _ in _REASONING))
        return None

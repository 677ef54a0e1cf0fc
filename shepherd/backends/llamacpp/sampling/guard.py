"""What watches an answer while it is generated: its grammar, its calls, its reasoning."""

import codecs
from bisect import bisect_right
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from msgspec import Struct

from shepherd.backends.inprocess.constraint import Constraint
from shepherd.backends.inprocess.matcher import check_matcher
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.candidates import Candidates
from shepherd.backends.output.style import ThinkMarkers
from shepherd.errors import InvalidRequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher


MAX_TAIL = 4
"""Tokens of the answer that are tokenized together with forced text, because they decide where its
first token begins; the pre-tokenizers of today's vocabularies look at most one word back."""

MAX_SECONDS = 3.0
"""Seconds that a grammar may take before its speed is checked."""

MAX_SECONDS_A_TOKEN = 0.1
"""The average of which a grammar is given up after MAX_SECONDS."""

MAX_BRANCHES = 16
"""More texts than these are free text, which is chosen token by token."""

_FENCES = ("```", "~~~")
_REASONING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<thinking>", "</thinking>"))


def forced_tokens(vocab: Vocab, answer: Sequence[int], forced: bytes) -> list[int]:
    """The tokens of the text `forced` after the tokens of an answer, as far as they are certain.

    Empty if the text can't be tokenized without a change of the tokens before it and alone. Control
    tokens end the result, because only the model may choose them.
    """
    text = forced.decode("utf-8", "ignore").encode()  # without a cut character at the end
    tail = b"".join(map(vocab.piece, answer[-MAX_TAIL:]))
    tokens = _tokens_behind(vocab, tail, text)
    if tokens is None:  # the tail can't be tokenized as it was written
        tokens = _tokens_behind(vocab, b"", text) or []
    for place, token in enumerate(tokens):
        if token in vocab.controls or vocab.is_eog(token):
            return tokens[:place]
    return tokens


def without_extensible(vocab: Vocab, tokens: list[int]) -> list[int]:
    """The tokens without those at the end that could become another, longer token.

    `": "` may continue as `": "a`, which is one token in some vocabularies.
    """
    data = b"".join(map(vocab.piece, tokens))
    first = max(0, len(data) - vocab.max_token_bytes)  # no token is longer
    extensible = (i for i in range(first, len(data)) if _is_extensible(vocab, data[i:]))
    certain = next(extensible, len(data))
    end = 0
    for place, token in enumerate(tokens):
        end += len(vocab.piece(token))
        if end > certain:
            return tokens[:place]
    return tokens


def _is_extensible(vocab: Vocab, ending: bytes) -> bool:
    """Whether a longer token begins with these bytes."""
    pieces = vocab.sorted_pieces
    place = bisect_right(pieces, ending)
    return place < len(pieces) and pieces[place].startswith(ending)


def _tokens_behind(vocab: Vocab, before: bytes, text: bytes) -> list[int] | None:
    """The tokens of `text` behind the text `before`; None if a token has a part of both."""
    try:
        tokens = vocab.tokenize((before + text).decode("utf-8"), parse_special=True)
    except UnicodeDecodeError:  # the tail begins inside a character
        return None
    pieces = [vocab.piece(token) for token in tokens]
    joined = b"".join(pieces)
    # Where `text` begins in the pieces: a SentencePiece vocabulary may put a space in front.
    position = len(joined) - len(text)
    if position - len(before) not in (0, 1) or not joined.endswith(before + text):
        return None
    for place, piece in enumerate(pieces):
        if position <= 0:
            return tokens[place:] if position == 0 else None
        position -= len(piece)
    return None


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
            # A token without text would never bring the grammar to its end.
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

    def branches(self, forced: bytes) -> list[bytes]:
        """The texts of which one must follow the `forced` bytes, each as far as it is certain.

        Empty if they are many, or if the answer may end behind the forced bytes.
        """
        by_byte = self._vocab.byte_tokens
        if any(byte not in by_byte for byte in forced):
            return []
        with self.clock:
            matcher = self._matcher.deep_copy()
            matcher.consume_tokens([by_byte[byte] for byte in forced])
            if matcher.is_accepting() or matcher.is_error():
                return []
            mask = matcher.compute_bitmask()
            first_bytes = {t: b for b, t in by_byte.items() if mask[t >> 3] >> (t & 7) & 1}
            if not 1 < len(first_bytes) <= MAX_BRANCHES:
                return []
            texts: list[bytes] = []
            for token, byte in first_bytes.items():
                matcher.consume_token(token)
                texts.append(bytes([byte]) + matcher.compute_ff_bytes())
                matcher.rollback(1)
        return texts

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


class CallDetector:
    """Detects a marker at the start of a line, outside of reasoning and code blocks."""

    def __init__(self, calls: Constraint) -> None:
        """`calls` says what begins a call."""
        self._marker = calls.trigger
        self._names = calls.names
        self._opening = calls.opening
        self._behind_name = calls.behind_name
        self._thoughts = dict([*_REASONING, *((m.open, m.close) for m in calls.thoughts)])
        self._call_text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._in_reasoning = calls.reasoning
        self._in_code = False
        self._line = ""
        """The current line so far."""

    def feed(self, piece: bytes) -> str | None:
        """Read more of the answer; returns the text after the marker, if it was found."""
        text = self._decoder.decode(piece)
        if "\n" not in text:
            return self._look(text)
        *lines, last = text.split("\n")
        for number, line in enumerate(lines):
            after_marker = self._look(line)
            if after_marker is not None:
                return "\n".join((after_marker, *lines[number + 1 :], last))
            if self._line.lstrip().startswith(_FENCES) and not self._in_reasoning:
                self._in_code = not self._in_code
            self._line = ""
        return self._look(last)

    def follow(self, text: str) -> None:
        """Read more of a call that has begun."""
        self._call_text += text

    @property
    def has_name(self) -> bool:
        """Whether the call with its text so far names its tool, which the model chooses."""
        text = self._call_text
        is_open = text.startswith(self._opening)
        return is_open and self._behind_name in text.removeprefix(self._opening)

    def names_unknown_tool(self, text: str) -> bool:
        """Whether the call with this text added names a tool that is not offered.

        The model chooses the tool: a grammar must not force another name.
        """
        call_text = self._call_text + text
        if not call_text.startswith(self._opening):
            return False
        name, end, _ = call_text.removeprefix(self._opening).partition(self._behind_name)
        if end:  # the name is complete
            return name not in self._names
        return not any(known.startswith(name) for known in self._names)

    def end_call(self) -> None:
        """Note the end of a call: the next one may begin at once, or on another line."""
        self._line = self._call_text = ""

    def _look(self, text: str) -> str | None:
        """Read more of the current line; returns the text after the marker that begins it."""
        self._line += text
        start = self._line.lstrip()
        if self._in_reasoning:  # a call in it is only a thought, also behind its end in this line
            self._in_reasoning = not any(close in self._line for close in self._thoughts.values())
        elif not self._in_code and start.startswith(self._marker):
            return start[len(self._marker) :]
        else:
            self._in_reasoning = start.startswith(tuple(self._thoughts))
        return None


EFFORT_TOKENS = {"minimal": 256, "low": 1024, "medium": 4096, "high": 16_384}
"""The budget of each effort, for models whose template does not know efforts."""


class ThoughtBudget(Struct, frozen=True):
    """The tokens that a model may reason, and the markers around reasoning.

    `begun` are the markers of reasoning that the prompt has begun; None if the answer may begin it.
    """

    tokens: int
    markers: Sequence[ThinkMarkers]
    begun: ThinkMarkers | None = None


def thought_budget(
    tokens: int | None, markers: Sequence[ThinkMarkers], prompt_tail: str
) -> ThoughtBudget | None:
    """The budget of an answer after a prompt that ends with this text; None without a limit."""
    if tokens is None or not markers:
        return None
    tail = prompt_tail.rstrip()
    begun = next((pair for pair in markers if tail.endswith(pair.open)), None)
    return ThoughtBudget(tokens, markers, begun)


class ThoughtMeter:
    """Counts the tokens of reasoning in one answer."""

    def __init__(self, budget: ThoughtBudget) -> None:
        self._budget = budget
        self._markers = budget.begun
        """Those around the reasoning; None before it has begun."""
        self._beginning = ""
        """The answer so far, until it is known whether it begins with reasoning."""
        self._tail = ""
        """The end of the reasoning, in which a closing marker may have begun."""
        self._tokens = 0
        self._over = False
        """Whether the reasoning has ended, or will not come."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> None:
        """Read the text of the next token."""
        if self._over:
            return
        text = self._decoder.decode(piece)
        if self._markers is None:
            self._look_for_start(text)
            return
        self._tokens += 1
        close = self._markers.close
        reasoning = self._tail + text
        self._over = close in reasoning  # also where the same token has text behind the marker
        self._tail = reasoning[-len(close) :]

    @property
    def ending(self) -> str:
        """The text that must end the reasoning now; "" before the budget is used up.

        A closing marker that has begun may be completed by the model.
        """
        markers = self._markers
        if self._over or markers is None or self._tokens < self._budget.tokens:
            return ""
        if any(self._tail.endswith(markers.close[:size]) for size in range(1, len(markers.close))):
            return ""
        newline = "" if self._tail.endswith("\n") else "\n"
        return f"{newline}{markers.close}" + "\n" * markers.after

    def end(self) -> None:
        """Count no more: the reasoning was ended, or it can't be."""
        self._over = True

    def _look_for_start(self, text: str) -> None:
        """Find out whether the answer begins with reasoning; if not, nothing is counted."""
        self._beginning = (self._beginning + text).lstrip()
        for markers in self._budget.markers:
            if self._beginning.startswith(markers.open):
                self._markers = markers
                return
        may_follow = any(m.open.startswith(self._beginning) for m in self._budget.markers)
        self._over = not may_follow

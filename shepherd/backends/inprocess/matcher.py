"""Compiles grammars to matchers, within limits on time and memory.

The module is also a program that tries to compile a grammar, and that its parent may kill. It reads
the grammar from its input and writes the problem; nothing if there is none.
"""

import asyncio
import random
import re
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from shepherd.bounded import limit_resources, run_bounded
from shepherd.errors import BackendError, InvalidRequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


_LIMITS = {
    "max_items_in_row": 2_000,
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 100_000,
}
"""The limits of one grammar: 20 ms of regular expressions at first and 14 ms a step, 40 MB of their
states (llguidance's own figures). All but the states and the size are its defaults."""

_PLACES = re.compile(r"^(?:at \d+\(\d+\): |failed to compile JSON schema: )+")

_WIDE = re.compile(r"Current row has (?P<open>\d+) items; max is (?P<limit>\d+)")

_UNIMPLEMENTED = "Unimplemented keys"
_QUOTED = re.compile(r'"([^"]+)"')
"""llguidance's message for other keywords than its own: `Unimplemented keys: ["not", "if"]`."""

_DEAD_END = "NoExtension"
"""llguidance's message if no token can follow."""

_WALKS = 4
_STEPS = 200
_WALK_SECONDS = 0.2

MAX_KNOWN = 32
"""The maximum number of compiled grammars that are kept."""

MAX_SECONDS = 20.0
"""The limit of a trial on a busy machine; the trial itself limits its own time."""

_TRIALS = 2
_SMALL = 16_384
_COSTLY = re.compile(
    r'"(?:pattern|multipleOf|allOf|\$ref)"\s*:(?!\s*(?:\{|true|false))|"patternProperties"\s*:|%lark'
)
"""Only this can be costly in a small grammar. Behind a property's name comes a schema."""


class TokenBytes(Struct, frozen=True):
    """A vocabulary as the bytes of its tokens; those that end an answer have no text."""

    pieces: list[bytes]
    ends: list[int]


BYTES = TokenBytes([*(bytes([byte]) for byte in range(256)), b""], [256])
"""One token for each byte, and one for the end."""


class _Tokens:
    """The same in llguidance's interface. It never needs to tokenize: no text is forced."""

    bos_token_id = None

    def __init__(self, vocabulary: TokenBytes) -> None:
        self.tokens = [*vocabulary.pieces]
        self.special_token_ids = vocabulary.ends
        if not vocabulary.ends:  # llguidance needs an end: add a token that never occurs
            self.special_token_ids = [len(self.tokens)]
            self.tokens.append(b"")
        self.eos_token_id = self.special_token_ids[0]
        for token in self.special_token_ids:
            self.tokens[token] = b"\xff<end-%d>" % token  # no text has the byte 0xff

    def __call__(self, text: bytes | str) -> list[int]:
        return []


def tokenizer_for(vocabulary: TokenBytes) -> "LLTokenizer":
    """llguidance's data of a vocabulary; takes a second for a quarter of a million tokens."""
    from llguidance import LLTokenizer, TokenizerWrapper

    tokens = _Tokens(vocabulary)
    return LLTokenizer(
        TokenizerWrapper(tokens), n_vocab=len(tokens.tokens), eos_token=tokens.special_token_ids
    )


def compile_grammar(grammar: str, tokenizer: "LLTokenizer") -> "LLMatcher":
    """A matcher at a grammar's beginning, with its first tokens computed.

    Raises InvalidRequestError with llguidance's reason. Long computations do not block other
    threads.
    """
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(**_LIMITS, precompute_large_lexemes=False, verbose_errors=False)
    lark = LLMatcher.grammar_from_lark(grammar)
    matcher = LLMatcher(tokenizer, lark, log_level=0, limits=limits)
    matcher.compute_bitmask()
    check_matcher(matcher)
    if matcher.is_error():  # a dead end before the first token
        raise InvalidRequestError("The schema or grammar can't be enforced: no text matches it.")
    return matcher


def check_matcher(matcher: "LLMatcher") -> None:
    """Raise InvalidRequestError if matching became too expensive; a dead end is not an error."""
    if matcher.is_error() and not matcher.get_error().startswith(_DEAD_END):
        reason = _reason(matcher)
        if reason.startswith(_UNIMPLEMENTED):
            keywords = ", ".join(_QUOTED.findall(reason))
            reason = f"The JSON schema can't be enforced with strict: {keywords}."
            raise InvalidRequestError(reason)
        raise InvalidRequestError(f"The schema or grammar can't be enforced: {reason}")


def ignored_keywords(matcher: "LLMatcher") -> list[str]:
    """The keywords of JSON schemas that llguidance has left out of the grammar."""
    keywords: list[str] = []
    for warning in matcher.get_grammar_warnings():
        if warning.startswith(_UNIMPLEMENTED):
            keywords += _QUOTED.findall(warning)
        elif warning.startswith("Unknown format"):
            keywords.append("format")
        elif warning.startswith("min/maxProperties"):
            keywords.append("minProperties or maxProperties")
        elif warning.startswith("oneOf"):  # more than one of its choices may fit
            keywords.append("oneOf")
    return keywords


def walk(matcher: "LLMatcher") -> None:
    """Follow some texts over `BYTES` for a moment; raises InvalidRequestError."""
    chance = random.Random(0)
    deadline = perf_counter() + _WALK_SECONDS
    for _ in range(_WALKS):  # a grammar may compile fast and match slowly
        walker = matcher.deep_copy()
        for _ in range(_STEPS):
            allowed_bits = int.from_bytes(walker.compute_bitmask(), "little")
            check_matcher(walker)
            allowed_bytes = [byte for byte in range(256) if allowed_bits >> byte & 1]
            if not allowed_bytes or walker.is_stopped() or perf_counter() > deadline:
                break
            walker.consume_token(chance.choice(allowed_bytes))
            check_matcher(walker)


def _reason(matcher: "LLMatcher") -> str:
    """The first line of llguidance's message, without positions in internal text."""
    lines = [line.strip() for line in matcher.get_error().splitlines()]
    # The other lines quote the grammar, or draw where in it the problem is.
    messages = [line for line in lines if line and not line.startswith("<") and "|" not in line]
    text = messages[0] if messages else "llguidance gives no reason"
    text = _PLACES.sub("", text)
    wide = _WIDE.search(text)
    if wide:
        return (
            f"it is too ambiguous: {wide['open']} of its places can be open at once, and "
            f"{wide['limit']} are the most. It has too many optional parts or alternatives."
        )
    if text.startswith("oneOf"):
        return "more than one choice of a oneOf may fit."
    below = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    text = " ".join((text, *below))  # the problem of a pattern is on the lines below
    return f"{text[:300]}."


class GrammarCompiler(Struct, eq=False):
    """Compiles each grammar once. Used from one event loop.

    `vocabulary` loads that of the model, when the first grammar is compiled.
    `python` is the interpreter in which grammars are tried.
    """

    _load_vocabulary: Callable[[], Awaitable[TokenBytes]]
    _python: str = sys.executable
    _tokenizer: "LLTokenizer | None" = None
    """Made with the first grammar."""
    _known_matchers: OrderedDict[str, "LLMatcher"] = field(
        default_factory=OrderedDict[str, "LLMatcher"]
    )
    """By their grammars, the one that was used last at the end."""
    _free_trials: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_TRIALS))

    async def matcher(self, grammar: str, *, own: bool = False) -> "LLMatcher":
        """A matcher at the beginning of `grammar`, which callers copy.

        Raises InvalidRequestError if the grammar can't be compiled within the limits. `own`: the
        grammar is made only from schemas, so a small one can't be costly.
        """
        if grammar in self._known_matchers:
            self._known_matchers.move_to_end(grammar)
            return self._known_matchers[grammar]
        if not own or len(grammar) > _SMALL or _COSTLY.search(grammar) is not None:
            await self._try(grammar)
        if self._tokenizer is None:
            vocabulary = await self._load_vocabulary()
            self._tokenizer = await asyncio.to_thread(tokenizer_for, vocabulary)
        matcher = await asyncio.to_thread(compile_grammar, grammar, self._tokenizer)
        self._known_matchers[grammar] = matcher
        while len(self._known_matchers) > MAX_KNOWN:
            self._known_matchers.popitem(last=False)
        return matcher

    async def _try(self, grammar: str) -> None:
        """Compile the grammar in a process that may be killed: a thread could not be stopped.

        Raises InvalidRequestError if that fails or takes too much.
        """
        async with self._free_trials:
            try:
                answer = await run_bounded(
                    __name__, grammar.encode(), seconds=MAX_SECONDS, python=self._python
                )
            except OSError as error:
                raise BackendError(f"The grammar can't be tried: {error}") from error
        if answer is None:
            raise InvalidRequestError(
                "The schema or grammar is too large: preparing it takes more than 2 seconds or "
                "1 GiB of memory. Make it smaller, or its counts and patterns."
            )
        if answer:
            raise InvalidRequestError(answer.decode())


MAX_CPU_SECONDS = 2
MAX_BYTES = 1 << 30


def main() -> int:
    """Try the grammar within the limits."""
    limit_resources(MAX_CPU_SECONDS, MAX_BYTES)
    grammar = sys.stdin.buffer.read().decode()
    try:
        walk(compile_grammar(grammar, tokenizer_for(BYTES)))
    except InvalidRequestError as error:
        sys.stdout.buffer.write(str(error).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())

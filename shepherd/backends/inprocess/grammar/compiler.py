"""Compiles grammars, without delaying decoding or other prompts."""

import asyncio
import re
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from shepherd.backends.inprocess.grammar.matcher import TokenBytes, compile_grammar, tokenizer_for
from shepherd.errors import BackendError, InvalidRequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_KNOWN = 32
"""The maximum number of compiled grammars that are kept."""

MAX_SECONDS = 20.0
"""The limit of a trial on a busy machine; the trial itself limits its own time."""

_PROGRAM = "shepherd.backends.inprocess.grammar.trial"
_TRIALS = 2
_SMALL = 16_384
_COSTLY = re.compile(
    r'"(?:pattern|multipleOf|allOf|\$ref)"\s*:(?!\s*(?:\{|true|false))|"patternProperties"\s*:'
)
"""In a small grammar only these keywords can be costly. Behind a property's name comes a schema."""


class GrammarCompiler:
    """Compiles each grammar once. Used from one event loop."""

    def __init__(self, vocabulary: Callable[[], Awaitable[TokenBytes]]) -> None:
        """`vocabulary` loads that of the model, when the first grammar is compiled."""
        self._vocabulary = vocabulary
        self._tokenizer: LLTokenizer | None = None
        self._known: OrderedDict[str, LLMatcher] = OrderedDict()
        self._trials = asyncio.Semaphore(_TRIALS)

    async def matcher(self, grammar: str, *, own: bool = False) -> "LLMatcher":
        """A matcher at the beginning of `grammar`, which callers copy.

        Raises InvalidRequestError if the grammar can't be compiled within the limits. `own`: the
        grammar is made only from schemas, so a small one can't be costly.
        """
        if grammar in self._known:
            self._known.move_to_end(grammar)
            return self._known[grammar]
        if not own or _may_cost_much(grammar):
            await self._try(grammar)
        if self._tokenizer is None:
            self._tokenizer = await asyncio.to_thread(tokenizer_for, await self._vocabulary())
        matcher = await asyncio.to_thread(compile_grammar, grammar, self._tokenizer)
        self._known[grammar] = matcher
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return matcher

    async def _try(self, grammar: str) -> None:
        """Compile it in another process first."""
        async with self._trials:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", _PROGRAM),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                )
            except OSError as error:
                raise BackendError(f"The grammar can't be tried: {error}") from error
            try:
                async with asyncio.timeout(MAX_SECONDS):
                    answer, _ = await process.communicate(grammar.encode())
            except TimeoutError:
                raise _too_large() from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if answer:
            raise InvalidRequestError(answer.decode())
        if process.returncode:
            raise _too_large()


def _may_cost_much(grammar: str) -> bool:
    return len(grammar) > _SMALL or _COSTLY.search(grammar) is not None


def _too_large() -> InvalidRequestError:
    return InvalidRequestError(
        "The schema or grammar is too large: preparing it takes more than 2 seconds or 1 GiB of "
        "memory. Make it smaller, or its counts and patterns."
    )

"""A choice between a few texts, made by how likely the model finds each as a whole.

Behind forced text a grammar often leaves only a few texts, such as the values of an enum. A mask on
the next token would count every word that begins like an allowed one for it: the "a" of "a" and
"and" for "append". The model would have chosen another text, had it known how this one ends.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shepherd.backends.llamacpp.cache.prefixes import common_prefix
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.candidates import log_total
from shepherd.backends.llamacpp.sampling.guard import (
    MAX_BRANCHES,
    GrammarGuard,
    forced_tokens,
    without_extensible,
)

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.sampling.candidates import Row

NEGLIGIBLE = math.log(0.01)
"""Texts that together have less than this share of the probability are not weighed."""

_KEPT = 2
"""Tokens behind a text that count too: they tell it from a longer one that is not allowed."""

_MIN_TEMPERATURE = 0.01


class Choice:
    """The texts between which the model chooses, as tokens, and their log probabilities."""

    def __init__(self, options: Sequence[list[int]], temperature: float) -> None:
        """`temperature` is that of the request."""
        self.options = options
        self._tokens = distinct_tokens(options)
        self._temperature = max(temperature, _MIN_TEMPERATURE)
        self._firsts: list[float] = []
        """The log probability of each option's first token; the whole has at most that."""
        self._scores: dict[int, float] = {}

    @property
    def begun(self) -> bool:
        """Whether the first tokens are known, so that the options can be weighed."""
        return bool(self._firsts)

    def begin(self, row: "Row") -> None:
        """Take the logits before the options."""
        total = log_total(row, row.copy())
        self._firsts = [float(row[option[0]]) - total for option in self.options]
        single = (number for number, option in enumerate(self.options) if len(option) == 1)
        self._scores = {number: self._firsts[number] for number in single}

    def next(self) -> int | None:
        """The option to weigh next; None if the others are too unlikely to matter."""
        missing = [number for number in range(len(self.options)) if number not in self._scores]
        if not missing:
            return None
        most = self._log_sum([self._firsts[number] for number in missing])
        if self._scores and most < self._log_sum([*self._scores.values()]) + NEGLIGIBLE:
            return None
        return max(missing, key=self._firsts.__getitem__)

    def note(self, number: int, rows: Sequence["Row"]) -> None:
        """Take the logits behind all but the last token of an option.

        They tell of all that differ in their last token alone, such as the digits of a number.
        """
        read = self.options[number][:-1]
        scores = [row - log_total(row, row.copy()) for row in rows]
        for other, option in enumerate(self.options):
            if option[:-1] == read:
                behind = zip(option[1:], scores, strict=True)
                self._scores[other] = self._firsts[other] + sum(float(s[t]) for t, s in behind)

    def weights(self, size: int) -> tuple["Row", list[int]]:
        """The options' log probabilities as logits of a vocabulary, and the token of each."""
        import numpy as np

        row = np.full(size, -np.inf, np.float32)
        for number, score in self._scores.items():
            row[self._tokens[number]] = score
        return row, [self._tokens[number] for number in sorted(self._scores)]

    def option_with(self, token: int) -> list[int]:
        """The option of a token of `weights`."""
        return self.options[self._tokens.index(token)]

    def _log_sum(self, scores: list[float]) -> float:
        """The logarithm of the options' shares at the temperature."""
        shares = [score / self._temperature for score in scores]
        best = max(shares)
        return best + math.log(sum(math.exp(share - best) for share in shares))


def distinct_tokens(options: Sequence[list[int]]) -> list[int]:
    """For each option, the token with which it begins to differ from all others."""
    tokens: list[int] = []
    for option in options:
        shared = [common_prefix(option, other) for other in options if other is not option]
        tokens.append(option[min(max(shared, default=0), len(option) - 1)])
    return tokens


def find_options(
    vocab: Vocab, guard: GrammarGuard, answer: Sequence[int], *, may_end: bool
) -> list[list[int]]:
    """The texts of which one must follow the tokens of an answer; none if there are many.

    `may_end` says that a text at whose end the grammar ends is not joined with what follows.
    """
    options: list[list[int]] = []
    beginnings = [guard.forced()]
    before = b"".join(map(vocab.piece, answer[-1:]))
    while beginnings:
        beginning = beginnings.pop()
        branches = guard.branches(beginning)
        if (before + beginning)[-1:].isdigit() and any(text[:1].isdigit() for text in branches):
            return []  # a number goes on, and each digit would be a text to read
        if not branches or len(options) + len(beginnings) + len(branches) > MAX_BRANCHES:
            return []
        for text in branches:
            tokens = guard.allowed_part(forced_tokens(vocab, answer, beginning + text))
            if not (may_end and guard.ends_after(tokens)):
                tokens = without_extensible(vocab, tokens)
            if sum(len(vocab.piece(token)) for token in tokens) > len(beginning):
                options.append(tokens)
            else:  # it is not certain which tokens tell this text from others: it is too short
                beginnings.append(beginning + text)
    options = _cut(options)
    return options if len(set(distinct_tokens(options))) == len(options) > 1 else []


def _cut(options: list[list[int]]) -> list[list[int]]:
    """The options without the tokens with which all go on alike, except the first of these."""
    longest = min(map(len, options)) - 1
    common = 0
    while common < longest and len({option[-1 - common] for option in options}) == 1:
        common += 1
    return [option[: len(option) - max(0, common - _KEPT)] for option in options]

"""The error of the prior, kind by kind, learned from the counts of providers."""

from collections.abc import Sequence

from shepherd.backends.api.estimate.features import KINDS, Features

FORGETTING = 0.97
"""The weight of an observation shrinks by this factor with each new one."""

SPREAD = 2.0
"""The expected variance of the kinds' ratios around their common ratio."""

EXACT = 1e-5
"""The minimum variance of a ratio: no tokenizer is considered more regular than this."""

ROUGH = 32
"""Texts of this many tokens have half the weight, because single tokens matter much in them."""

BELIEVABLE = 200.0
"""An observation that is wrong by more than this factor is ignored."""


class Ratios:
    """A moving least-squares fit of true tokens to the prior's, one ratio per kind.

    Undetermined ratios are drawn towards the average one. Noisier observations increase this
    effect. One observation is enough to correct the average from any start.
    """

    def __init__(self) -> None:
        size = len(KINDS)
        self._square = [[0.0] * size for _ in KINDS]
        self._mean = [0.0] * size
        self._truth = self._weight = 0.0
        self._ratios = [1.0] * size

    def predict(self, features: Features) -> float:
        """The tokens of a text with these features."""
        return sum(r * f for r, f in zip(self._ratios, features, strict=True))

    def learn(self, features: Features, tokens: float) -> None:
        """Learn that a text with these features has this many tokens."""
        if not 1 / BELIEVABLE < tokens / max(1e-9, sum(features)) < BELIEVABLE:
            return
        weight = tokens / (tokens + ROUGH)
        scale = max(tokens, self.predict(features)) if self._weight else tokens
        shares, share = [f / scale for f in features], tokens / scale
        for row, own in zip(self._square, shares, strict=True):
            row[:] = [FORGETTING * a + weight * own * s for a, s in zip(row, shares, strict=True)]
        self._mean = [
            FORGETTING * b + weight * share * s for b, s in zip(self._mean, shares, strict=True)
        ]
        self._truth = FORGETTING * self._truth + weight * share**2
        self._weight = FORGETTING * self._weight + weight
        self._ratios = self._fit()

    def _fit(self) -> list[float]:
        common = sum(self._mean) / sum(map(sum, self._square))
        ratios = self._ridge(common, EXACT)
        noise = self._residual(ratios)
        return [max(0.0, r) for r in self._ridge(common, EXACT + noise / SPREAD)]

    def _ridge(self, common: float, pull: float) -> list[float]:
        """The fit that is drawn towards `common` with the strength `pull`."""
        rows = [
            [*row, mean + pull / common] for row, mean in zip(self._square, self._mean, strict=True)
        ]
        for i, row in enumerate(rows):
            row[i] += pull / common**2
        return solve(rows)

    def _residual(self, ratios: Sequence[float]) -> float:
        """The mean squared relative error of `ratios` over the observations."""
        seen = sum(r * m for r, m in zip(ratios, self._mean, strict=True))
        squares = [
            r * sum(q * a for q, a in zip(ratios, row, strict=True))
            for r, row in zip(ratios, self._square, strict=True)
        ]
        return max(0.0, self._truth - 2 * seen + sum(squares)) / self._weight


def solve(rows: list[list[float]]) -> list[float]:
    """The solution of linear equations; each row is its coefficients and its right side.

    Needs a positive definite matrix. Changes `rows`.
    """
    size = len(rows)
    for i, pivot in enumerate(rows):
        for row in rows[i + 1 :]:
            factor = row[i] / pivot[i]
            for k in range(i, size + 1):
                row[k] -= factor * pivot[k]
    values = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][k] * values[k] for k in range(i + 1, size))
        values[i] = (rows[i][size] - known) / rows[i][i]
    return values

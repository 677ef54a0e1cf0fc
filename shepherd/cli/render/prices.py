"""What tokens cost, for models whose prices are in the settings."""

from collections.abc import Sequence
from dataclasses import dataclass

from shepherd.cli.render.totals import Totals


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens that are read, are cached, and are written."""

    read: float
    written: float
    cached: float

    def cost(self, totals: Totals) -> float:
        """The US dollars for these tokens."""
        new = max(0, totals.prompt_tokens - totals.cached_tokens)
        cached, written = totals.cached_tokens, totals.completion_tokens
        return (new * self.read + cached * self.cached + written * self.written) / 1e6


def read_prices(lines: Sequence[str]) -> dict[str, Price]:
    """The prices by model, from lines that `TerminalSection` has checked."""
    prices: dict[str, Price] = {}
    for line in lines:
        model, read, written, *cached = line.split()
        prices[model] = Price(float(read), float(written), float(cached[0] if cached else read))
    return prices


def dollars(cost: float) -> str:
    """`$0.0123`, `$1.23`."""
    return f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}"

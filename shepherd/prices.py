"""What tokens cost: the prices of models, and sums in US dollars."""

from collections.abc import Mapping, Sequence

from msgspec import Struct


class Price(Struct, frozen=True):
    """US dollars for a million tokens that are read, are written, and are read from a cache."""

    read: float
    written: float
    cached: float

    def cost(self, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> float:
        """The US dollars for these tokens; the cached ones are a part of the prompt."""
        new = max(0, prompt_tokens - cached_tokens)
        read = new * self.read + cached_tokens * self.cached
        return (read + completion_tokens * self.written) / 1e6


def read_prices(lines: Sequence[str]) -> dict[str, Price]:
    """The prices by model, from lines that `TerminalSection` has checked."""
    prices: dict[str, Price] = {}
    for line in lines:
        model, read, written, *cached = line.split()
        prices[model] = Price(float(read), float(written), float(cached[0] if cached else read))
    return prices


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The price of a model by its name, with or without its vendor."""
    return prices.get(model) or prices.get(model.rsplit("/", 1)[-1])


def dollars(cost: float) -> str:
    """`$0.0123`, `$1.23`."""
    return f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}"

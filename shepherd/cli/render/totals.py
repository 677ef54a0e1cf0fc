"""Sums of tokens and seconds over generations."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Totals:
    """Sums over the generations of this run; speeds are of the last one."""

    turns: int = 0
    generations: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    cost: float | None = None
    """US dollars for those generations whose price is known."""

    def add(self, stats: dict[str, Any]) -> None:
        """Add the content of a STATS event."""
        self.generations += 1
        self.prompt_tokens += int(stats.get("prompt_tokens", 0))
        self.cached_tokens += int(stats.get("cached_tokens", 0))
        self.completion_tokens += int(stats.get("completion_tokens", 0))
        self.prefill_seconds += float(stats.get("prefill_seconds", 0.0))
        cost = stats.get("cost")
        if cost is not None:
            self.cost = (self.cost or 0.0) + float(cost)
        self.decode_seconds += float(stats.get("decode_seconds", 0.0))

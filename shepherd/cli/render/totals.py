"""Sums of tokens and seconds over generations."""

from dataclasses import dataclass

from shepherd.events import Stats


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

    def add(self, stats: Stats) -> None:
        """Add the measures of one generation."""
        self.generations += 1
        self.prompt_tokens += stats.prompt_tokens
        self.cached_tokens += stats.cached_tokens
        self.completion_tokens += stats.completion_tokens
        self.prefill_seconds += stats.prefill_seconds
        self.decode_seconds += stats.decode_seconds
        if stats.cost is not None:
            self.cost = (self.cost or 0.0) + stats.cost

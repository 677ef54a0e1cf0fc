"""The state of one of a provider's servers, as status pages and metrics show it."""

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """Whether an upstream gets requests: a busy one later, one that is down after a check."""

    UP = "up"
    BUSY = "busy"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """One upstream: its health, and its counts since the provider was opened.

    `requests` includes the `failures`, and those that are `running`. `cached_tokens` of the
    `prompt_tokens` came from its cache. `error` is the reason why it is not up, else "".
    """

    url: str
    health: Health = Health.UP
    running: int = 0
    requests: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""

    def describe(self) -> str:
        """The state in a line."""
        share = self.cached_tokens / max(self.prompt_tokens, 1)
        cached = f", {share:.0%} cached" * bool(self.prompt_tokens)
        failed = f", {self.failures} failed" * bool(self.failures)
        reason = f": {self.error}" * bool(self.error)
        counts = f"{self.running} running, {self.requests} requests{failed}{cached}"
        return f"{self.url} {self.health} ({counts}){reason}"

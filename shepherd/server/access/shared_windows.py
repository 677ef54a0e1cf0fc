"""What one key uses, as a row that all servers of a database read and write."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shepherd.server.access.limits import PERIODS, Limiter, Resource
from shepherd.storage.rows import Rows

MIGRATIONS = ("CREATE TABLE limits (key TEXT PRIMARY KEY, state TEXT NOT NULL)",)

LEASE_SECONDS = 60.0
"""Tokens that a server holds count for this time after its last word."""


def local_clock(_rows: Rows) -> float:
    """The time of this machine, in seconds since 1970."""
    return time.time()


def database_clock(rows: Rows) -> float:
    """The time of PostgreSQL, which is the same for all servers."""
    statement = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"
    return float(rows.execute(statement).fetchone()[0])


@dataclass(slots=True)
class KeyWindows:
    """The use of one key at a time; `held` has the tokens that each server holds, and until when.

    All other servers' tokens are reserved in `limiter`.
    """

    key: str
    now: float
    held: dict[str, tuple[int, float]]
    limiter: Limiter = field(init=False)

    @classmethod
    def load(cls, rows: Rows, key: str, clock: Callable[[Rows], float]) -> "KeyWindows":
        """The row of the key called `key`; the transaction must lock the key."""
        row = rows.execute("SELECT state FROM limits WHERE key = ?", (key,)).fetchone()
        state: dict[str, Any] = {} if row is None else json.loads(row[0])
        now = max(clock(rows), state.get("latest", 0.0))
        held = {
            server: (amount, until)
            for server, (amount, until) in state.get("held", {}).items()
            if until > now
        }
        windows = cls(key, now, held)
        windows._restore(state)
        return windows

    def __post_init__(self) -> None:
        now = self.now
        self.limiter = Limiter(lambda: now)

    def hold(self, server: str, amount: int) -> None:
        """The tokens that a server holds from now on."""
        before = self.held.pop(server, (0, 0.0))[0]
        if amount:
            self.held[server] = amount, self.now + LEASE_SECONDS
        for seconds in PERIODS:
            self.limiter.window(self.key, Resource.TOKENS, seconds).reserve(amount - before)

    def save(self, rows: Rows) -> None:
        """Write the row."""
        windows = {
            f"{resource}:{seconds}": self.limiter.window(self.key, resource, seconds).amounts()
            for resource in Resource
            for seconds in PERIODS
        }
        state = {"latest": self.now, "held": self.held, "windows": windows}
        rows.execute(
            "INSERT INTO limits VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET state = excluded.state",
            (self.key, json.dumps(state)),
        )

    def _restore(self, state: dict[str, Any]) -> None:
        amounts = state.get("windows", {})
        for resource in Resource:
            for seconds in PERIODS:
                window = self.limiter.window(self.key, resource, seconds)
                parts = [
                    (int(part), int(used))
                    for part, used in amounts.get(f"{resource}:{seconds}", ())
                ]
                window.restore(parts, self.now)
        for amount, _ in self.held.values():
            for seconds in PERIODS:
                self.limiter.window(self.key, Resource.TOKENS, seconds).reserve(amount)

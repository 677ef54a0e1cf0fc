"""How much was used within a period that ends now."""

from collections import deque
from collections.abc import Iterable, Sequence

SLOTS = 60
"""The parts of a period; an amount counts until its whole part is older than the period."""


class SlidingWindow:
    """Amounts within the last `seconds`; with `limit`, no period of that length holds more.

    Reserved amounts count until they are settled. Times are seconds of a clock of the caller; one
    that goes backwards is taken to stand still.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._slot = seconds / SLOTS
        self._amounts: deque[tuple[int, int]] = deque()
        self._used = 0
        self._reserved = 0
        self._latest = 0.0

    @property
    def latest(self) -> float:
        """The latest time that was seen."""
        return self._latest

    def amounts(self) -> Sequence[tuple[int, int]]:
        """The parts of the period with what was used in them."""
        return tuple(self._amounts)

    def restore(self, amounts: Iterable[tuple[int, int]], latest: float) -> None:
        """Replace what was used by earlier `amounts`, up to a time."""
        self._amounts = deque(amounts)
        self._used = sum(amount for _, amount in self._amounts)
        self._latest = latest

    def free(self, limit: int, now: float) -> int:
        """How much of the limit is left, at least 0."""
        self._expire(now)
        return max(0, limit - self._used - self._reserved)

    def reserve(self, amount: int) -> None:
        """Hold an amount until it is settled."""
        self._reserved += amount

    def settle(self, reserved: int, amount: int, now: float) -> None:
        """Replace a reservation by what was used."""
        self._reserved -= reserved
        self.add(amount, now)

    def add(self, amount: int, now: float) -> None:
        """Count an amount."""
        self._expire(now)
        slot = int(self._latest // self._slot)
        if self._amounts and self._amounts[-1][0] >= slot:
            slot, earlier = self._amounts.pop()
            self._amounts.append((slot, earlier + amount))
        elif amount:
            self._amounts.append((slot, amount))
        self._used += amount

    def wait(self, amount: int, limit: int, now: float) -> float:
        """The seconds until an amount is free; the whole period if that is not known."""
        missing = amount - self.free(limit, now)
        for slot, used in self._amounts:
            if missing <= 0:
                break
            missing -= used
            if missing <= 0:
                return self._end(slot) - self._latest
        return 0.0 if missing <= 0 else self.seconds

    def reset(self, now: float) -> float:
        """The seconds until all that was used is free again."""
        self._expire(now)
        return self._end(self._amounts[-1][0]) - self._latest if self._amounts else 0.0

    def _end(self, slot: int) -> float:
        return (slot + 1) * self._slot + self.seconds

    def _expire(self, now: float) -> None:
        self._latest = max(self._latest, now)
        while self._amounts and self._end(self._amounts[0][0]) <= self._latest:
            self._used -= self._amounts.popleft()[1]

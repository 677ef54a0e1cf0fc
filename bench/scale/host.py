"""Time in a simulation: pauses, and work that may share the cores of one machine."""

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class Host:
    """Runs actions when their time has come, or when their work is done.

    Without `cores`, work takes its own seconds. With them, those are seconds of a core: the work of
    one replica shares a core, and all replicas at work share the cores.
    """

    def __init__(self, cores: float = 0.0) -> None:
        self.now = 0.0
        self._cores = cores
        self._events: list[tuple[float, int, Action]] = []
        self._count = 0
        self._work: dict[int, dict[int, tuple[float, Action]]] = {}
        """By replica and number: the seconds of a core that are left."""

    def wait(self, seconds: float, action: Action) -> None:
        """Run an action after a time."""
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, action))

    def work(self, replica: int, seconds: float, action: Action) -> None:
        """Run an action after some work of a replica."""
        if not self._cores:
            self.wait(seconds, action)
            return
        self._count += 1
        self._work.setdefault(replica, {})[self._count] = seconds, action

    def run(self) -> None:
        """Run until nothing is left to do."""
        while self._events or self._work:
            if self._work and self._advance():
                continue
            self.now, _, action = heapq.heappop(self._events)
            action()

    def _advance(self) -> bool:
        """Work until a piece of it is done, or until the next event; whether a piece was done."""
        speed = min(1.0, self._cores / len(self._work))
        lengths = [
            (left * len(pieces) / speed, number, replica)
            for replica, pieces in self._work.items()
            for number, (left, _) in pieces.items()
        ]
        seconds, number, replica = min(lengths)
        until = self._events[0][0] if self._events else float("inf")
        is_done = self.now + seconds <= until
        passed = seconds if is_done else until - self.now
        for pieces in self._work.values():
            share = passed * speed / len(pieces)
            for other, (left, action) in pieces.items():
                pieces[other] = left - share, action
        self.now += passed
        if is_done:
            _, action = self._work[replica].pop(number)
            if not self._work[replica]:
                del self._work[replica]
            action()
        return is_done

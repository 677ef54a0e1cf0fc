"""All open connections of a server: limits on their number, and a check every second."""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from shepherd.server.settings import ServerSettings

_TICKS_PER_TIMEOUT = 4


class TrackedConnection(Protocol):
    """A connection from the table's point of view."""

    @property
    def address(self) -> str:
        """The other side's address."""
        ...

    @property
    def idle(self) -> bool:
        """Whether it waits for the head of a request, so that closing it loses no work."""
        ...

    def check(self, now: float) -> None:
        """Close it if a limit has passed; `now` is the loop's time."""
        ...

    def close_idle(self) -> None:
        """Close it to admit another one."""
        ...


def _ignore(_status: int, _client: str) -> str:
    """Refusals need not be noted."""
    return ""


class ConnectionTable:
    """Admits connections up to `max_connections`, and per address up to another limit.

    If it is full, the longest idle connection is closed. Addresses of this machine have no limit of
    their own: a proxy's clients all come from one.
    """

    def __init__(
        self, settings: ServerSettings, note_refusal: Callable[[int, str], str] = _ignore
    ) -> None:
        """`note_refusal` gets the status of a refused request and the client's address.

        It returns the request's id.
        """
        self.note_refusal = note_refusal
        self._settings = settings
        self._connections: dict[TrackedConnection, None] = {}
        self._by_address: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._connections)

    def admit(self, connection: TrackedConnection) -> bool:
        """Add a connection; False if there is no place."""
        if not self._has_room(connection.address) and not self._make_room(connection.address):
            return False
        self._connections[connection] = None
        self._by_address[connection.address] += 1
        if self._timer is None:
            self._schedule()
        return True

    def remove(self, connection: TrackedConnection) -> None:
        """Remove a connection; safe to call twice."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]

    def _has_room(self, address: str) -> bool:
        total, each = self._settings.max_connections, self._settings.max_connections_per_address
        if total and len(self._connections) >= total:
            return False
        return not each or self._by_address[address] < each or _is_loopback(address)

    def _make_room(self, address: str) -> bool:
        each = self._settings.max_connections_per_address
        crowded = each and self._by_address[address] >= each and not _is_loopback(address)
        for connection in self._connections:  # the oldest first
            if connection.idle and (not crowded or connection.address == address):
                self.remove(connection)
                connection.close_idle()
                return self._has_room(address)
        return False

    def _schedule(self) -> None:
        shortest = min(self._settings.read_timeout, self._settings.write_timeout)
        period = min(1.0, shortest / _TICKS_PER_TIMEOUT)
        self._timer = asyncio.get_running_loop().call_later(period, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in list(self._connections):
            connection.check(now)
        if self._connections:
            self._schedule()


def _is_loopback(address: str) -> bool:
    """Whether an address is this machine's; connections over a Unix socket have none."""
    if not address:
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False

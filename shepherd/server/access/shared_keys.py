"""The API keys in a database, which all its servers check against."""

import threading
import time
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from msgspec import Struct

from shepherd.errors import ConfigError
from shepherd.server.access.key import ApiKey, format_entry, parse_entries
from shepherd.server.access.keys import KeyChange, Keys, KeyStoreError, now
from shepherd.storage.rows import Database, Rows

MIGRATIONS = (
    """
    CREATE TABLE api_keys (name TEXT PRIMARY KEY, place BIGINT NOT NULL, entry TEXT NOT NULL);
    CREATE TABLE api_keys_generation (number BIGINT NOT NULL);
    INSERT INTO api_keys_generation VALUES (0);
    """,
)

POLL_SECONDS = 0.5
"""A server sees a change of the keys after this time."""

KEYS_GRACE = 600.0
"""The seconds for which known keys stay valid if the database does not answer, by default."""

T = TypeVar("T")


class _Snapshot(Struct, frozen=True):
    """The keys of a moment, by `time.monotonic`, and the number of their last change."""

    keys: list[ApiKey]
    generation: int
    moment: float


class DatabaseKeys(Keys):
    """The keys in a database; for `grace` seconds those that were there when it last answered.

    The first check starts a thread that reads the changes of other servers.
    """

    def __init__(
        self, database: Database, clock: Callable[[], datetime] = now, grace: float = KEYS_GRACE
    ) -> None:
        super().__init__(clock)
        self._database = database
        self._grace = grace
        self._snapshot: _Snapshot | None = None
        self._last_error: ConfigError | None = None
        self._is_followed = False
        """Whether the thread that reads the changes was started."""
        self._lock = threading.Lock()

    def keys(self) -> list[ApiKey]:
        """All keys, oldest first, as they are in the database now; raises KeyStoreError."""
        return list(self._load().keys)

    def _change(self, change: KeyChange) -> None:
        self._database.run(lambda rows: _replace(rows, change))
        self._load()

    def _current(self) -> list[ApiKey]:
        """The keys if they are not too old; the first call starts the thread that reads them."""
        with self._lock:  # of two first calls at once only one starts it
            was_followed, self._is_followed = self._is_followed, True
        if not was_followed:
            self.refresh()  # the keys were last read before the model was loaded
            repeat(self, DatabaseKeys.refresh, POLL_SECONDS)
        snapshot = self._snapshot or self._load()
        if time.monotonic() - snapshot.moment > self._grace:
            raise self._last_error or KeyStoreError("The database with the keys does not answer.")
        return snapshot.keys

    def refresh(self) -> None:
        """Read the keys if they have changed; a failure counts against their age."""
        try:
            self._load()
        except ConfigError as error:  # the thread must not end
            self._last_error = error

    def _load(self) -> _Snapshot:
        """The keys in the database, which become the present ones."""
        # the time before the reading: a change during it makes the keys no newer than that
        moment, seen = time.monotonic(), self._snapshot

        def read(rows: Rows) -> _Snapshot:
            statement = "SELECT number FROM api_keys_generation"
            generation = int(rows.execute(statement).fetchone()[0])
            if seen is not None and seen.generation == generation:  # no change since then
                return _Snapshot(seen.keys, generation, moment)
            return _Snapshot(_read(rows), generation, moment)

        snapshot = self._database.run(read, write=False)
        with self._lock:
            # another thread may have read later than this one, and have been faster
            if self._snapshot is None or self._snapshot.moment <= moment:
                self._snapshot = snapshot
        return snapshot


def repeat(owner: T, work: Callable[[T], None], seconds: float) -> None:
    """Do `work` with an object at an interval, in a thread, until nobody uses the object."""
    stop, reference = threading.Event(), weakref.ref(owner)

    def run() -> None:
        while not stop.wait(seconds):
            current = reference()
            if current is not None:  # else it is garbage, and `stop` is set at once
                work(current)
            del current  # the thread must not keep the object while it waits

    weakref.finalize(owner, stop.set)
    threading.Thread(target=run, daemon=True).start()


def _read(rows: Rows) -> list[ApiKey]:
    """All keys, the oldest first; raises KeyStoreError."""
    entries = rows.execute("SELECT entry FROM api_keys ORDER BY place").fetchall()
    try:
        return parse_entries(text for (text,) in entries)
    except (ValueError, RecursionError) as error:
        raise KeyStoreError("The keys in the database are damaged.") from error


def _replace(rows: Rows, change: KeyChange) -> None:
    """Write the rows of the keys that a change has added, changed or removed."""
    # first, because it lets no other transaction read the keys to change them
    rows.execute("UPDATE api_keys_generation SET number = number + 1")
    old = _read(rows)
    new = change(old)
    kept = {key.name for key in new}
    rows.executemany(
        "DELETE FROM api_keys WHERE name = ?", [(key.name,) for key in old if key.name not in kept]
    )
    last_place = rows.execute("SELECT coalesce(max(place), 0) FROM api_keys").fetchone()[0]
    rows.executemany(
        # a key that exists already keeps its place
        "INSERT INTO api_keys VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET entry = excluded.entry",
        [
            (key.name, last_place + number, format_entry(key))
            for number, key in enumerate(new, start=1)
            if key not in old  # unchanged keys are not written
        ],
    )

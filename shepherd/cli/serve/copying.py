"""Copies keys, usage, limits, stored responses and sessions of this user into a database."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shepherd.config.paths import Paths
from shepherd.errors import SessionError
from shepherd.server.access import shared
from shepherd.server.access.keys import KeyStore
from shepherd.server.access.limits import Resource
from shepherd.server.access.shared_limits import KeyWindows, database_clock
from shepherd.server.access.usage import Charge, UsageStore, open_usage
from shepherd.server.openai_responses.store import open_responses, responses_in
from shepherd.storage.postgres import PostgresServer
from shepherd.storage.rows import Database, Rows
from shepherd.transcript.database import SessionDatabase
from shepherd.transcript.reading import parse_session
from shepherd.transcript.storage import SessionFiles

PAGE = 500
"""Rows of one transaction."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its columns, of which the first `key` ones are its primary key."""

    name: str
    columns: Sequence[str]
    key: int = 1

    def read(self, rows: Rows, offset: int) -> list[Sequence[Any]]:
        """A page of the rows, in the order of their keys."""
        order = ", ".join(self.columns[: self.key])
        names = ", ".join(self.columns)
        statement = f"SELECT {names} FROM {self.name} ORDER BY {order} LIMIT ? OFFSET ?"
        return rows.execute(statement, (PAGE, offset)).fetchall()

    def add(self, rows: Rows, page: Sequence[Sequence[Any]]) -> None:
        """Add rows whose keys are new."""
        places = ", ".join("?" * len(self.columns))
        names = ", ".join(self.columns)
        statement = f"INSERT INTO {self.name} ({names}) VALUES ({places}) ON CONFLICT DO NOTHING"
        rows.executemany(statement, page)


_ALL_DAYS = 36_500
_TOKENS = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
USAGE = Table("usage", ("day", "key", "model", *_TOKENS), key=3)
LAST_USED = Table("last_used", ("key", "moment"))
RESPONSES = Table("responses", ("id", "owner", "used", "previous", "bytes", "body"))
ITEMS = Table("items", ("response", "position", "output", "id", "body"), key=2)


def copy_state(paths: Paths, server: PostgresServer) -> Iterator[str]:
    """Copy all; yields a sentence for each part. What is in the database already stays.

    Raises ShepherdError; the copy can then be made again.
    """
    keys = KeyStore(paths.keys_file).keys()
    existing = shared.keys_in(server).insert(keys)
    yield f"Keys: {len(keys) - len(existing)} copied."
    if existing:
        yield f"These keys are in the database already and stay as they are: {', '.join(existing)}."
    if paths.usage_file.exists():
        yield f"Usage: {_copy_usage(paths.usage_file, server)} rows."
    if paths.responses_file.exists():
        source, target = open_responses(paths.responses_file), responses_in(server)
        copy_table(source, target, ITEMS)  # first, so that no response lacks items meanwhile
        yield f"Stored responses: {copy_table(source, target, RESPONSES)}."
        source.close()


def copy_sessions(paths: Paths, server: PostgresServer) -> Iterator[str]:
    """Copy all saved sessions; yields a sentence for each problem, and one with their number.

    An incomplete last line, and sessions that are in the database already, are left out. Raises
    ShepherdError.
    """
    source, target = SessionFiles(paths.sessions), SessionDatabase(server)
    number = 0
    for session_id in source.ids():
        try:
            data = source.read(session_id)
            saved = parse_session(source.name(session_id), data)
        except SessionError as error:
            yield f"{error}. It is not copied."
            continue
        lines = data[: saved.sound_bytes] + (b"" if saved.complete else b"\n")
        number += target.add(session_id, lines, source.modified(session_id))
    yield f"Sessions: {number} copied."


def _copy_usage(path: Path, server: PostgresServer) -> int:
    source, target = open_usage(path), shared.usage_in(server)
    number = copy_table(source, target, USAGE)
    copy_table(source, target, LAST_USED)
    source.close()
    charges = defaultdict[str, list[Charge]](list)
    for charge in UsageStore(path, _ALL_DAYS).load_charges(time.time()):
        charges[charge.key].append(charge)
    shared.limits_in(server).run(partial(_add_charges, charges=charges))
    return number


def _add_charges(rows: Rows, charges: Mapping[str, Sequence[Charge]]) -> None:
    """What was used in the last day, for keys of which nothing is counted yet."""
    for key, uses in charges.items():
        statement = "SELECT 1 FROM limits WHERE key = ?"
        if rows.execute(statement, (key,)).fetchone() is not None:
            continue
        windows = KeyWindows.load(rows, key, database_clock)
        for use in uses:
            windows.limiter.restore(key, Resource(use.resource), use.amount, use.moment)
        windows.save(rows)


def copy_table(source: Database, target: Database, table: Table) -> int:
    """Copy a table page by page; returns the number of its rows.

    Raises the errors of the stores. After an error it can be called again.
    """
    offset = 0
    while page := source.run(partial(table.read, offset=offset), write=False):
        target.run(partial(table.add, page=page))
        offset += len(page)
    return offset

"""Copies the rows of a store into another database; rows that are there already stay."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shepherd.storage.rows import Database, Rows

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


def copy_table(source: Database, target: Database, table: Table) -> int:
    """Copy a table page by page; returns the number of its rows.

    Raises the errors of the stores. After an error it can be called again.
    """
    offset = 0
    while page := source.run(partial(table.read, offset=offset), write=False):
        target.run(partial(table.add, page=page))
        offset += len(page)
    return offset

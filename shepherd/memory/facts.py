"""Facts: what somebody wanted remembered under a name, for a project or for all of them."""

import time

from shepherd.errors import MemoryStoreError
from shepherd.memory.database import Handle
from shepherd.memory.records import Fact

EVERYWHERE = ""
"""The project of facts that hold for all projects."""

MAX_FACTS = 1000
MAX_KEY, MAX_VALUE = 200, 8192
"""Characters."""


def set_fact(handle: Handle, project: str, key: str, value: str) -> None:
    """Set or replace a fact of `project`, EVERYWHERE for all; raises MemoryStoreError if full."""
    handle.connection.execute(
        "INSERT INTO facts (project, key, value, changed) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (project, key) DO UPDATE SET value = excluded.value,"
        " changed = excluded.changed",
        (project, key, value, int(time.time())),
    )
    count = "SELECT count(*) FROM facts WHERE project = ?"
    if handle.connection.execute(count, (project,)).fetchone()[0] > MAX_FACTS:
        raise MemoryStoreError(f"there are {MAX_FACTS} facts already; clear one first")


def facts_of(handle: Handle, project: str) -> list[Fact]:
    """The facts that hold in `project`, by key; its own go before those for all projects."""
    rows = handle.connection.execute(
        "SELECT key, value, project = ? FROM facts WHERE project IN (?, ?) ORDER BY key, project",
        (EVERYWHERE, EVERYWHERE, project),
    )
    facts = {key: Fact(key, value, bool(everywhere)) for key, value, everywhere in rows}
    return list(facts.values())


def clear_fact(handle: Handle, project: str, key: str) -> bool:
    """Forget the fact that holds in `project` under `key`; False if there is none."""
    delete = "DELETE FROM facts WHERE project = ? AND key = ?"
    return any(
        handle.connection.execute(delete, (where, key)).rowcount for where in (project, EVERYWHERE)
    )

"""The tables, and the migrations from older versions."""

import sqlite3

MIGRATIONS = (
    """
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        bytes INTEGER NOT NULL,
        said INTEGER NOT NULL,
        session TEXT NOT NULL,
        directory TEXT NOT NULL,
        project TEXT NOT NULL,
        role TEXT NOT NULL,
        tool TEXT NOT NULL,
        body TEXT NOT NULL
    );
    CREATE INDEX messages_bytes ON messages (bytes);
    CREATE TABLE facts (
        project TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        changed INTEGER NOT NULL,
        PRIMARY KEY (project, key)
    ) WITHOUT ROWID;
    """,
)
"""The statements that lead from each version to the next; times are seconds since 1970."""

_INDEX = """
CREATE VIRTUAL TABLE messages_fts USING fts5 (
    body, content = 'messages', content_rowid = 'id',
    tokenize = 'porter unicode61 remove_diacritics 2'
)
"""


def has_full_text(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite has FTS5."""
    try:
        connection.execute("CREATE VIRTUAL TABLE temp.probe USING fts5 (x)")
        connection.execute("DROP TABLE temp.probe")
    except sqlite3.OperationalError:
        return False
    return True


def prepare_index(connection: sqlite3.Connection) -> None:
    """Create the full-text index, and fill it if a SQLite without FTS5 has written meanwhile."""
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'messages_fts'"
    if connection.execute(tables).fetchone()[0] == 0:
        connection.execute(_INDEX)
    in_index = "SELECT count(*) FROM messages_fts_docsize"
    in_table = "SELECT count(*) FROM messages"
    if connection.execute(in_index).fetchone() != connection.execute(in_table).fetchone():
        connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('rebuild')")

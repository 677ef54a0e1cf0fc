"""The address of a PostgreSQL database."""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is; `password` is "" if libpq finds one itself, or none is needed."""

    url: str
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        """The host and the name of the database, for messages."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        if not host:
            host = dict(parse_qsl(parts.query)).get("host", "")
        return f"PostgreSQL ({host}{parts.path})"

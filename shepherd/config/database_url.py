"""The URL of a PostgreSQL database, which never holds the password."""

from urllib.parse import parse_qsl, unquote, urlsplit

SCHEMES = ("postgresql", "postgres")
SECRET_PARAMETERS = frozenset({"password", "sslpassword"})

NO_PASSWORD = (
    "the URL must not hold a password; set server.database_password to the place of the password"
)
"""The error for a URL with a password; it must not quote the URL."""


def check_url(url: str) -> None:
    """Raise ValueError if `url` is not the URL of a PostgreSQL database, or holds a password."""
    try:
        parts = urlsplit(url)
        parameters = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise ValueError("the URL can't be read") from None
    user = parts.netloc.rpartition("@")[0]
    names = {unquote(name).strip().lower() for name, _ in parameters}
    odd = "@" in f"{user}{parts.path}{parts.query}"  # a password with one of / ? @
    if ":" in user or odd or names & SECRET_PARAMETERS:
        raise ValueError(NO_PASSWORD)
    if parts.scheme not in SCHEMES:
        raise ValueError("write postgresql://USER@HOST:PORT/DATABASE")
    if parts.fragment:
        raise ValueError("write # as %23")

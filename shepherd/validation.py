"""Sentences about invalid data: pydantic's problems, and unknown names."""

import difflib
import json
from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_LENGTHS = frozenset({"too_short", "too_long", "string_too_short", "string_too_long"})
_VALUE_ERROR, _EXPECTATION = "Value error, ", "Input should be "

_SCHEMES = ("postgresql", "postgres")
_SECRET_PARAMETERS = frozenset({"password", "sslpassword"})

_NO_PASSWORD = (
    "the URL must not hold a password; set server.database_password to the place of the password"
)
"""The error for a URL with a password; it must not quote the URL."""


def key_of(problem: ErrorDetails) -> str:
    """The location of a problem in the data: `messages.0.role`; "" for the data as a whole."""
    return ".".join(str(part) for part in problem["loc"])


def describe_problem(
    problem: ErrorDetails,
    key: str,
    *,
    unknown: str = "",
    expected: str = "",
    show_value: bool = False,
) -> str:
    """One of pydantic's problems in a sentence that begins with `key`.

    `unknown` is the sentence for an unknown key. `expected` describes a valid value better than
    pydantic does. With `show_value`, the text contains the value.
    """
    message = problem["msg"].removeprefix(_VALUE_ERROR)
    if problem["type"] == "extra_forbidden":
        return unknown or f"{key} is unknown"
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] in _LENGTHS and not expected:  # pydantic names types of Python in these
        return f"{key} must {_length_of(message)}"
    # a validator's own sentence says more than `expected`
    own_words = problem["type"] in ("value_error", "string_pattern_mismatch")
    if own_words or not (expected or message.startswith(_EXPECTATION)):
        return f"{key}: {message}" if key else message
    value = f", got {_json_text(problem['input'])}" if show_value else ""
    return f"{key} must be {expected or message.removeprefix(_EXPECTATION)}{value}".strip()


def problems_of(error: ValidationError) -> str:
    """Everything that is wrong with data, in one line."""
    return "; ".join(describe_problem(p, key_of(p)) for p in error.errors(include_url=False))


def _length_of(message: str) -> str:
    """`have at least 1 item`, without the name of the type in Python."""
    return message.partition(" should ")[2].partition(" after validation")[0]


def check_web_address(url: str, advice: str) -> None:
    """Raise ValueError unless `url` is empty, or a web address without a user or password.

    `advice` says what to do with the password.
    """
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"must hold no password; {advice}")


def check_database_url(url: str) -> None:
    """Raise ValueError if `url` is not the URL of a PostgreSQL database, or holds a password."""
    try:
        parts = urlsplit(url)
        parameters = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise ValueError("the URL can't be read") from None
    user = parts.netloc.rpartition("@")[0]
    names = {unquote(name).strip().lower() for name, _ in parameters}
    # a password with / ? or @ in it ends the host early, and its @ is left over
    has_other_at = "@" in f"{user}{parts.path}{parts.query}"
    if ":" in user or has_other_at or names & _SECRET_PARAMETERS:
        raise ValueError(_NO_PASSWORD)
    if parts.scheme not in _SCHEMES:
        raise ValueError("write postgresql://USER@HOST:PORT/DATABASE")
    if parts.fragment:
        raise ValueError("write # as %23")


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """The most similar word, "" if none is similar; `cutoff` is difflib's, from 0 to 1."""
    return next(iter(difflib.get_close_matches(word, list(words), n=1, cutoff=cutoff)), "")


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`; did you mean WORD?` with the most similar of `words`, "" if none is similar."""
    guess = nearest(word, words)
    return f"; did you mean {guess}?" if guess else ""


def _json_text(value: object) -> str:
    """A value as JSON, or as Python writes what JSON has no form for."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)

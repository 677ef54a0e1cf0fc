"""Extracts the words and numbers from an error body, whatever its shape."""

import json
import re
from collections.abc import Iterator
from typing import cast

from shepherd.messages import JsonObject

MAX_TEXT = 2_000
"""An error text longer than this many characters is cut."""

MAX_READ = 20_000
"""The number of a text's characters that are searched, and decoded if they are JSON."""

MAX_DEPTH = 20

_INNER = ("message", "error", "detail", "errors", "metadata", "raw", "details", "violations")
_LEAVES = ("msg", "errorMessage", "Message")
_CODES = ("code", "type", "status", "error_type", "error_code", "__type", "quotaId")
_TITLE = re.compile(r"<title>([^<]{1,300})</title>", re.IGNORECASE)


def error_text(body: object) -> str:
    """The message of an error body for the user, cut to a sane length; "" without one."""
    texts = dict.fromkeys(t for t in _messages(_decoded(body), 0, fields=True) if t)
    text = ": ".join(texts) or _whole(body)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def searchable(body: object) -> str:
    """All of the error's own words and codes, without any part of the request that it repeats."""
    value = _decoded(body)
    return "\n".join([*_messages(value, 0), *_codes(value, 0)])[:MAX_READ]


def rejected_fields(body: object) -> list[str]:
    """The fields of the request that an error names, with dots between."""
    return list(dict.fromkeys(_rejected_fields(_decoded(body), 0)))


def field(body: object, name: str) -> int | None:
    """The number in the field `name`, anywhere in the error."""
    return next(_fields(_decoded(body), name, 0), None)


def _decoded(body: object) -> object:
    """The body, or the value of its JSON if it is a text."""
    if not isinstance(body, str):
        return body
    text = body.strip()
    if text[:1] not in ("{", "[", '"') or len(text) > MAX_READ:
        return body
    try:
        return cast(object, json.loads(text))
    except (ValueError, RecursionError):
        return body


def _messages(value: object, depth: int, *, fields: bool = False) -> Iterator[str]:
    """The texts in the usual places of errors, the outermost first.

    `fields`: a problem of pydantic's comes with the name of its field.
    """
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        inner = _decoded(value)
        if inner is value:
            yield _plain(value)
        else:
            yield from _messages(inner, depth + 1, fields=fields)
    elif isinstance(value, list):
        for item in cast(list[object], value)[:20]:
            yield from _messages(item, depth + 1, fields=fields)
    elif isinstance(value, dict):
        error = cast(JsonObject, value)
        for key in _INNER:
            yield from _messages(error.get(key), depth + 1, fields=fields)
        prefix = _field_name(error) if fields else ""
        yield from (prefix + _plain(t) for t in map(error.get, _LEAVES) if isinstance(t, str))


def _field_name(problem: JsonObject) -> str:
    """The field of a pydantic problem, and a colon; "" for any other error."""
    location = problem.get("loc")
    if not isinstance(location, list):
        return ""
    steps = [str(step) for step in cast(list[object], location)]
    name = ".".join(steps[1:] if steps[:1] == ["body"] else steps)
    return f"{name}: " if name else ""


def _codes(value: object, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        inner = _decoded(value)
        if inner is not value:
            yield from _codes(inner, depth + 1)
    elif isinstance(value, list):
        for item in cast(list[object], value)[:20]:
            yield from _codes(item, depth + 1)
    elif isinstance(value, dict):
        known = cast(JsonObject, value)
        yield from (code for code in map(known.get, _CODES) if isinstance(code, str))
        for key in _INNER:
            yield from _codes(known.get(key), depth + 1)


def _rejected_fields(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        value = _decoded(value)
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in cast(list[object], value)[:20]:
            yield from _rejected_fields(item, depth + 1)
    elif isinstance(value, dict):
        known = cast(JsonObject, value)
        if isinstance(name := known.get("param"), str):
            yield name
        if isinstance(way := known.get("loc"), list):
            yield ".".join(str(step) for step in cast(list[object], way))
        for key in _INNER:
            yield from _rejected_fields(known.get(key), depth + 1)


def _fields(value: object, name: str, depth: int) -> Iterator[int]:
    if isinstance(value, str):
        value = _decoded(value)
    if isinstance(value, dict) and depth <= MAX_DEPTH:
        known = cast(JsonObject, value)
        number: object = known.get(name)
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            yield number
        for key in _INNER:
            yield from _fields(known.get(key), name, depth + 1)


def _plain(text: str) -> str:
    """The text, or the title of the page that a proxy sends in its place."""
    if re.match(r"\s*<(?:!doctype|html)", text, re.IGNORECASE):
        title = _TITLE.search(text[:MAX_READ])
        return title[1].strip() if title is not None else ""
    return text.strip()


def _whole(body: object) -> str:
    if body in (None, "", {}, []):
        return ""
    try:
        return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str)
    except RecursionError:
        return ""

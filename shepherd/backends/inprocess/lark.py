"""Grammars in the dialect of Lark that llguidance reads."""

import json
import re
from typing import Any, cast

from shepherd import errors, messages

MAX_GRAMMAR = 1_000_000
"""Characters of the longest grammar."""

_HEADER = '%llguidance {"no_forcing": true}'
"""Every matching token is allowed, not only the usual tokens of a forced text."""

_ESCAPES = 'nrbtf\\"'
"""Without \\u, which could disguise a named property as a free name."""

CONTROL = re.compile(r"\\u00[01]")
"""A control character in JSON, such as \\u0007."""


class Rules:
    """A growing set of named rules; equal bodies with the same name are one rule."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._size = 0

    def add(self, name: str, body: str) -> str:
        """The name of the rule: `name`, with a number if another rule has it.

        Raises InvalidRequestError if the grammar gets too long.
        """
        free_name, number = name, 1
        while self._bodies.get(free_name, body) != body:
            number += 1
            free_name = f"{name}_{number}"
        if free_name not in self._bodies:
            self._size += len(free_name) + len(body)
            if self._size > MAX_GRAMMAR:
                raise errors.InvalidRequestError(
                    f"The schema or the tools are too large to be enforced: they take more than "
                    f"{MAX_GRAMMAR} characters."
                )
        self._bodies[free_name] = body
        return free_name

    def text(self, start: str) -> str:
        """All rules, `start` first."""
        rules = [f"{name}: {body}" for name, body in self._bodies.items()]
        return "\n".join((_HEADER, f"start: {start}", *rules))


def literal(text: str) -> str:
    """Exactly this text, as one lexeme: alternatives must not share its beginning."""
    return json.dumps(_clean(text), ensure_ascii=False).replace("\x7f", r"\u007f")


def characters(text: str) -> str:
    """Exactly this text, one character at a time, so that other text may share its beginning."""
    return " ".join(map(literal, text)) or '""'


def through(rules: Rules, marker: str) -> str:
    """The name of a rule for any text up to and including the first `marker`."""
    marker_pattern = "".join(map(escaped, _clean(marker)))
    anything, has_marker = "/(?s:.)*/", f"/(?s:.)*{marker_pattern}(?s:.)*/"
    return rules.add("THROUGH", f"({anything} & ~{has_marker}) {literal(marker)}")


def json_value(
    schema: Any,
    comma: str = ", ",
    colon: str = ": ",
    *,
    strict: bool = False,
) -> str:
    """A value that fits a prepared schema; with `strict`, all of it and exactly one of its `oneOf`.

    The whitespace is fixed, so there is no endless whitespace between two values; without a `comma`
    and a `colon` it is free.
    """
    # The options stand in the schema, and a schema that is only `true` or `false` has no place.
    holder = cast(messages.JsonObject, schema) if isinstance(schema, dict) else {"allOf": [schema]}
    # Only a schema with control characters in it needs \u.
    escapes = _ESCAPES + ("u" if CONTROL.search(json.dumps(holder)) else "")
    options: messages.JsonObject = {
        "whitespace_flexible": not comma,
        "item_separator": comma or ",",
        "key_separator": colon or ":",
        "coerce_one_of": not strict,
        "lenient": not strict,
        "json_allowed_escapes": escapes,
    }
    return f"%json {json.dumps({**holder, 'x-guidance': options})}"


def escaped(character: str) -> str:
    """A character inside a regular expression or a character class."""
    return f"\\x{{{ord(character):X}}}"


def _clean(text: str) -> str:
    """The text without lone surrogates, which no answer can contain."""
    return text.encode("utf-8", "replace").decode()

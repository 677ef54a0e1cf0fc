"""Values of arguments that are written as elements: their line breaks, and what nests in them."""

import re
from typing import Any

from shepherd.backends.output import repair
from shepherd.backends.output.catalog import from_text, properties
from shepherd.backends.output.notation import KEY, Fields
from shepherd.json_text import as_object
from shepherd.messages import JsonObject


def trimmed(value: str, fields: Fields, close: str) -> str:
    """The value without the line breaks that belong to the syntax."""
    begin = fields.middle[len(fields.middle.rstrip()) :]
    end = close[: len(close) - len(close.lstrip())]
    has_both = value.startswith("\n") and value.endswith("\n")
    # Models lay such elements out on several lines though the template does not.
    is_named = fields.open.endswith("=") or (has_both and fields.middle == '">')
    if not (begin or end) and is_named and not fields.types:
        begin = end = "\n"
    return value.removeprefix(begin).removesuffix(end)


def nested_value(text: str, fields: Fields, schema: Any, root: JsonObject) -> Any:
    """The object or the list that consists of elements; None if the text is anything else."""
    node = as_object(schema)
    known = properties(node)
    opening = re.compile(rf"\s*{re.escape(fields.open)}(?P<key>[\w.-]+){re.escape(fields.middle)}")
    elements: list[tuple[str, Any]] = []
    pos = 0
    while match := opening.match(text, pos):
        key = match["key"]
        end = _closing(text, match.end(), match[0].strip(), fields.close.replace(KEY, key).strip())
        if end is None:
            return None
        inner = text[match.end() : end[0]]
        own = known.get(key, node.get("items"))
        value = nested_value(inner, fields, own, root)
        elements.append((key, _leaf(inner, own, root) if value is None else value))
        pos = end[1]
    if not elements or text[pos:].strip():
        return None
    is_list = all(key == fields.item for key, _ in elements) and fields.item not in known
    return [value for _, value in elements] if is_list else dict(elements)


def _leaf(text: str, schema: Any, root: JsonObject) -> Any:
    """A value inside another one: as its schema says, or what it looks like."""
    if schema is not None:
        return from_text(text, schema, root)
    try:
        return repair.loads(text)
    except ValueError:
        return text


def _closing(text: str, pos: int, opening: str, closing: str) -> tuple[int, int] | None:
    """Where the closing text of an element begins and ends; others like it may be inside."""
    depth = 1
    while True:
        end = text.find(closing, pos)
        if end < 0:
            return None
        depth += text.count(opening, pos, end) - 1
        pos = end + len(closing)
        if not depth:
            return end, pos

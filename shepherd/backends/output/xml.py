"""Calls as XML: a function element with a child for each argument."""

import re
from functools import lru_cache
from html import unescape
from typing import NamedTuple

from shepherd.backends.output.catalog import ParsedCall, ToolCatalog

_MAX_KEYS = 256
"""The limit of argument names that are searched after a missing tag: larger patterns are slow."""

_NAMESPACE = r"(?:[\w-]+:|｜{1,2}\w+｜{1,2})?"
_SPACE = re.compile(r"\s*")
FUNCTION = re.compile(
    rf"<(?P<tag>{_NAMESPACE}(?:function|invoke))(?:=|\s+name\s*=\s*)"
    r"[\"']?(?P<name>[^\"'<>\s]+)[\"']?\s*>"
)
_NAMED_CHILD = re.compile(
    rf"<(?P<tag>{_NAMESPACE}(?:parameter|param|argument|arg))(?P<form>=|\s+name\s*=\s*)"
    r"[\"']?(?P<key>[^\"'<>]+?)[\"']?(?:\s[^<>]*)?>"
)
_KEYED_CHILD = re.compile(r"<arg_key>\s*(?P<key>[^<>]+?)\s*</arg_key>\s*<(?P<tag>arg_value)>")
_PLAIN_CHILD = re.compile(r"<(?P<tag>(?P<key>[A-Za-z_][\w.-]*))>")

_CHILDREN = (_NAMED_CHILD, _KEYED_CHILD, _PLAIN_CHILD)

_ATTRIBUTE = re.compile(
    r"\s+(?P<key>[\w:.-]+)\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)')"
)
_TAG_END = re.compile(r"\s*(?P<slash>/?)>")


class Scope(NamedTuple):
    """The known context of a body.

    `closed`: an outer closing tag follows it. `final`: nothing follows, tags may be missing.
    """

    closed: bool = False
    final: bool = False


class Element(NamedTuple):
    """The call of an element, () if it is something else, and the index after it."""

    calls: tuple[ParsedCall, ...]
    end: int


class Children(NamedTuple):
    """Arguments as text, and the index after them; `end` is None if more text must decide."""

    values: dict[str, str]
    end: int | None


def parse_elements(body: str, catalog: ToolCatalog, scope: Scope) -> tuple[ParsedCall, ...] | None:
    """The calls of a body that has only function elements, or only elements named after tools.

    Empty if it is something else, None if the last one is incomplete.
    """
    parse = parse_function if FUNCTION.match(body) else parse_element
    calls: tuple[ParsedCall, ...] = ()
    while body:
        element = parse(body, catalog, scope)
        if element is None:
            return None
        if not element.calls:
            return ()
        calls += element.calls
        body = body[element.end :].lstrip()
    return calls


def parse_function(text: str, catalog: ToolCatalog, scope: Scope) -> Element | None:
    """The element such as `<function=now>…</function>` at the beginning; None if incomplete."""
    opening = FUNCTION.match(text)
    tool = catalog.known(opening["name"]) if opening else None
    if opening is None or tool is None:
        return Element((), 0)
    return _content(text, opening.end(), f"</{opening['tag']}>", tool, catalog, scope)


def parse_element(text: str, catalog: ToolCatalog, scope: Scope) -> Element | None:
    """The element at the beginning of `text`; None if it is incomplete.

    Such as `<read_file path="notes.txt"/>`, `<read_file><path>notes.txt</path></read_file>`, or
    with JSON inside.
    """
    opening = re.match(r"<(?P<name>[^\s/<>\"'=]+)", text)
    tool = catalog.known(opening["name"]) if opening else None
    if opening is None or tool is None:
        return Element((), 0)

    values: dict[str, str] = {}
    pos = opening.end()
    while attribute := _ATTRIBUTE.match(text, pos):
        values[attribute["key"]] = unescape(attribute["double"] or attribute["single"] or "")
        pos = attribute.end()
    tag_end = _TAG_END.match(text, pos)
    if tag_end is None:
        return Element((), 0)
    if tag_end["slash"]:  # the tag is the whole element
        return Element((catalog.from_texts(tool, values),), tag_end.end())
    closing = f"</{opening['name']}>"
    pos = skip_space(text, tag_end.end())
    if text.startswith("{", pos):  # JSON counts only with its closing tag
        return _content(text, pos, closing, tool, catalog, Scope())
    keys = catalog.argument_names(tool)
    children = parse_children(text, pos, closing, keys, scope)
    if children is None:
        return Element((), 0)
    if children.end is None:
        return None
    values |= children.values
    # Other names, or none where the tool has some, mean that it is an ordinary element.
    has_others = not values.keys() <= set(keys)
    if has_others or (keys and not values):
        return Element((), 0)
    return Element((catalog.from_texts(tool, values),), children.end)


def parse_children(
    body: str, pos: int, closing: str, keys: tuple[str, ...], scope: Scope
) -> Children | None:
    """The child elements from `pos` to the `closing` tag; None if there is anything else.

    Without a closing tag they end with the body.
    """
    values: dict[str, str] = {}
    while True:
        pos = skip_space(body, pos)
        if closing and body.startswith(closing, pos):
            return Children(values, pos + len(closing))
        if pos == len(body):
            is_complete = scope.final or not closing
            return Children(values, pos if is_complete else None)
        forms = (pattern.match(body, pos) for pattern in _CHILDREN)
        child = next(filter(None, forms), None)
        if child is None:
            return None
        value_end = _value_end(child["tag"], closing, keys, scope).search(body, child.end())
        if value_end is None:
            return None if scope.final else Children(values, None)
        values[child["key"]] = _trimmed(body[child.end() : value_end.start()], child)
        pos = value_end.end()


def child_starts(prefix: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The possible beginnings of a function element's content; `prefix` is its namespace."""
    named = (f"<{prefix}{word}" for word in ("parameter", "param", "argument", "arg"))
    return ("{", *named, *(f"<{key}>" for key in keys))


def skip_space(text: str, pos: int) -> int:
    """The place of the next character that is not space."""
    match = _SPACE.match(text, pos)
    return match.end() if match else pos


def _content(
    body: str, pos: int, closing: str, tool: str, catalog: ToolCatalog, scope: Scope
) -> Element | None:
    """The rest of a function element: its arguments, as JSON or as children; None: incomplete."""
    start = skip_space(body, pos)
    if body.startswith("{", start):
        end = body.find(closing, start)
        if end < 0 and not scope.final:
            return None
        arguments = body[start : end if end >= 0 else len(body)]
        behind = end + len(closing) if end >= 0 else len(body)
        return Element(catalog.from_arguments_text(tool, arguments), behind)
    children = parse_children(body, pos, closing, catalog.argument_names(tool), scope)
    if children is None:
        return Element((), pos)
    if children.end is None:
        return None
    return Element((catalog.from_texts(tool, children.values),), children.end)


@lru_cache(maxsize=256)
def _value_end(tag: str, closing: str, keys: tuple[str, ...], scope: Scope) -> re.Pattern[str]:
    """The end of a value: its closing tag, if a tag or nothing follows.

    If the model forgot the tag, the value ends before the next argument or the function's end.
    """
    ends = [rf"</{re.escape(tag)}>(?=\s*(?:<|\Z))"]
    # `<arg_value>` names no argument, so that the next argument can't be recognised by its tag.
    if tag != "arg_value" and 0 < len(keys) <= _MAX_KEYS:
        names = "|".join(map(re.escape, keys))
        ends.append(rf"(?<=\n)(?=<{re.escape(tag)}(?:=|\s+name=)[\"']?(?:{names})[\"']?>)")
    if closing:
        behind = r"</tool_call>|<tool_call>|<function="
        if scope.closed or scope.final:
            behind += r"|\Z"
        ends.append(rf"(?={re.escape(closing)}\s*(?:{behind}))")
    return re.compile("|".join(ends))


def _trimmed(value: str, child: re.Match[str]) -> str:
    """The value without the line breaks that belong to the syntax."""
    form = child.groupdict().get("form")  # only `<parameter=key>` and `<parameter name="key">`
    if form is None:
        return value
    has_both = value.startswith("\n") and value.endswith("\n")
    if form != "=" and not has_both:
        return value
    return value.removeprefix("\n").removesuffix("\n")

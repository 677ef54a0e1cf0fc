"""Calls as an element named after the tool: `<name key="value"/>`."""

import re

from shepherd.backends.output.calls.catalog import ParsedCall, ToolCatalog
from shepherd.backends.output.calls.reader import ClosingReader, Verdict
from shepherd.backends.output.calls.xml import Scope, child_starts, parse_children, skip_space

_ATTRIBUTE = re.compile(r"\s+([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_TAG_END = re.compile(r"\s*(/?)>")
_BETWEEN = re.compile(r"\s*/?|\s+[\w:.-]+\s*(?:=\s*)?")
_QUOTES_OR_END = re.compile(r"[\"'>]")


def parse_element(
    text: str, catalog: ToolCatalog, scope: Scope
) -> tuple[tuple[ParsedCall, ...], int] | None:
    """The call at the beginning of `text`, and the index after it.

    There are no calls if it is something else; None if it is incomplete.
    """
    name = re.match(r"<([^\s/<>\"'=]+)", text)
    tool = catalog.known(name[1]) if name else None
    if name is None or tool is None:
        return (), 0
    from html import unescape  # loads the names of all characters

    values: dict[str, str] = {}
    pos = name.end()
    while match := _ATTRIBUTE.match(text, pos):
        values[match[1]] = unescape(match[2] if match[2] is not None else match[3])
        pos = match.end()
    end = _TAG_END.match(text, pos)
    if end is None:
        return (), 0
    if end[1]:
        return (catalog.from_texts(tool, values),), end.end()
    closing = f"</{name[1]}>"
    pos = skip_space(text, end.end())
    if text.startswith("{", pos):
        return _with_json(text, pos, closing, tool, catalog)
    keys = catalog.argument_names(tool)
    children = parse_children(text, pos, closing, keys, scope)
    if children is not None and children.end is None:
        return None
    values |= children.values if children else {}
    if children is None or not values.keys() <= set(keys) or (keys and not values):
        return (), 0
    return (catalog.from_texts(tool, values),), children.end or len(text)


def _with_json(
    text: str, pos: int, closing: str, tool: str, catalog: ToolCatalog
) -> tuple[tuple[ParsedCall, ...], int] | None:
    end = text.find(closing, pos)
    if end < 0:
        return None
    return catalog.from_arguments_text(tool, text[pos:end]), end + len(closing)


class ElementReader(ClosingReader):
    """Reads after `<name` with the name of a tool."""

    def __init__(self, catalog: ToolCatalog, marker: str) -> None:
        tool = catalog.known(marker[1:]) or ""
        starts = child_starts("", catalog.argument_names(tool))
        super().__init__(f"</{marker[1:]}>", starts)
        self._catalog = catalog
        self._marker = marker
        self._quote = ""
        self._outside = ""  # the text of the tag since the last quote
        self._in_tag = True

    def feed(self, text: str) -> Verdict | None:
        if not self._in_tag:
            return super().feed(text)
        self._pending += text
        if not self._parts and self._pending[0] not in " \t\r\n/>":
            return self._reject()
        return self._tag()

    def finish(self, *, truncated: bool) -> Verdict:
        return self._reject() if self._in_tag else super().finish(truncated=truncated)

    def _tag(self) -> Verdict | None:
        """Look for the `>` that ends the opening tag, outside quotes."""
        pos = 0
        while match := _QUOTES_OR_END.search(self._pending, pos):
            pos = match.end()
            if match[0] == ">" and not self._quote:
                return self._opened(pos)
            if self._quote in ("", match[0]) and match[0] != ">":
                self._quote = "" if self._quote else match[0]
                self._outside = ""
        if not self._quote:
            self._outside += self._pending[pos:]
            if not _BETWEEN.fullmatch(self._outside):
                return self._reject()
        self._use(len(self._pending))
        return None

    def _opened(self, end: int) -> Verdict | None:
        self._use(end)
        self._in_tag = False
        calls = self._parse(Scope())
        if calls is None:
            return super().feed("")
        return self._accept(calls) if calls else self._reject()

    def _parse(self, scope: Scope) -> tuple[ParsedCall, ...] | None:
        result = parse_element(self._marker + self._read, self._catalog, scope)
        return result and result[0]

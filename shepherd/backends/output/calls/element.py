"""Calls as an element named after the tool: `<name key="value"/>`."""

import re

from shepherd.backends.output.calls.bodies import parse_body
from shepherd.backends.output.calls.catalog import ParsedCall, ToolCatalog
from shepherd.backends.output.calls.diagnose import problem_of
from shepherd.backends.output.calls.reader import ClosingReader, Verdict
from shepherd.backends.output.calls.xml import FUNCTION, Scope, child_starts, parse_element

_BETWEEN = re.compile(r"\s*/?|\s+[\w:.-]+\s*(?:=\s*)?")
_QUOTES_OR_END = re.compile(r"[\"'>]")


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


class FunctionReader(ClosingReader):
    """Reads after `<function=name>` or `<invoke name="name">` without an outer tag."""

    def __init__(self, catalog: ToolCatalog, marker: str) -> None:
        match = FUNCTION.fullmatch(marker)
        tag, name = (match["tag"], match["name"]) if match else ("function", "")
        prefix = tag.removesuffix("function").removesuffix("invoke")
        keys = catalog.argument_names(catalog.known(name) or name)
        super().__init__(f"</{tag}>", child_starts(prefix, keys))
        self._catalog = catalog
        self._marker = marker

    def _parse(self, scope: Scope) -> tuple[ParsedCall, ...] | None:
        return parse_body(self._marker + self._read, self._catalog, scope)

    def _problem(self, text: str) -> str:
        return problem_of(self._marker + text, self._catalog)

"""A code fence that holds nothing but a call."""

import re

from shepherd.backends.output.calls.bare_json import CallScanner
from shepherd.backends.output.calls.catalog import ToolCatalog
from shepherd.backends.output.calls.reader import CallReader, Verdict

FENCED_LANGUAGES = frozenset({"", "json", "tool_call", "tool_code", "tool"})
_KEYS = ("name", "arguments", "parameters")
_MAX_HEAD = 64


class FencedCallReader(CallReader):
    """Reads behind the opening line of a fence, its closing line included.

    The block must be exactly one object of a tool's name and its arguments.
    """

    def __init__(self, catalog: ToolCatalog, fence: str) -> None:
        super().__init__()
        self._catalog = catalog
        self._scanner = CallScanner(catalog, _KEYS)
        char = re.escape(fence[0])
        self._closing = re.compile(rf"\s*\n[ \t]*{char}{{{len(fence)},}}[ \t]*(?=\r?\n)")
        self._at_end = re.compile(rf"\s*(?:\n[ \t]*{char}*[ \t]*\r?)?")
        self._json: str | None = None
        self._started = False

    def feed(self, text: str) -> Verdict | None:
        self._pending += text
        if not self._started:
            head = self._pending.lstrip()
            if len(self._pending) - len(head) > _MAX_HEAD or head[:1] not in ("", "{"):
                return self._reject()
            if not head:
                return None
            self._started = True
        if self._json is None and not self._read_json():
            return None if self._scanner.possible else self._reject()
        closing = self._closing.match(self._pending)
        if closing is not None:
            self._use(closing.end())
            return self._settle()
        return None if self._at_end.fullmatch(self._pending) else self._reject()

    def finish(self, *, truncated: bool) -> Verdict:
        if self._json is None:
            return self._reject()
        self._use(len(self._pending))
        return self._settle()

    def _read_json(self) -> bool:
        end = self._scanner.scan(self._pending)
        if not self._scanner.possible:
            return False
        self._use(len(self._pending) if end is None else end)
        if end is not None:
            self._json = self._read
        return end is not None

    def _settle(self) -> Verdict:
        calls = self._catalog.from_json_text(self._json or "", explicit=True)
        return self._accept(calls) if len(calls) == 1 else self._reject()

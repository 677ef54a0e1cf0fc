"""Readers of calls: what all of them do, and those of a call that is an XML element."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from shepherd.backends.output import markers, xml
from shepherd.backends.output.catalog import ParsedCall, ToolCatalog

_MAX_HEAD = 256

_BETWEEN = re.compile(r"\s*/?|\s+[\w:.-]+\s*(?:=\s*)?")
"""What may stand between two values of attributes, complete or not."""

_QUOTES_OR_END = re.compile(r"[\"'>]")


class Verdict(Struct, frozen=True):
    """The result of a candidate: `calls`, or plain `text` if there are none.

    `text` is the text after the marker. `rest` belongs to neither and must be parsed again.
    `problem` says why an intended call is not valid.
    """

    text: str
    calls: tuple[ParsedCall, ...] = ()
    rest: str = ""
    problem: str = ""


class CallReader(ABC):
    """Reads one candidate after its marker, until it can decide.

    The verdict depends only on the text, not on its pieces.
    """

    def __init__(self, catalog: ToolCatalog) -> None:
        self._catalog = catalog
        self._parts: list[str] = []
        """The text that was read, joined in `_read`."""
        self._pending: str = ""
        """The text that has arrived, but was not read yet."""

    @abstractmethod
    def feed(self, text: str) -> Verdict | None:
        """Read more text; None while it can still be a call."""

    @abstractmethod
    def finish(self, *, truncated: bool) -> Verdict:
        """Decide without more text; in `truncated` output only complete calls count."""

    @property
    def _read(self) -> str:
        """All text that was read."""
        return "".join(self._parts)

    def _use(self, length: int) -> None:
        """Note that so much of the pending text was read."""
        self._parts.append(self._pending[:length])
        self._pending = self._pending[length:]

    def _accept(self, calls: tuple[ParsedCall, ...]) -> Verdict:
        """The verdict that the text which was read is these calls."""
        return Verdict(self._read, calls, self._pending)

    def _reject(self, problem: str = "") -> Verdict:
        """The verdict that there is no call; `problem` says why, if one was intended."""
        return Verdict(self._read, (), self._pending, problem)


ReaderFactory = Callable[[ToolCatalog, str], CallReader]
"""`factory(catalog, marker)` makes the reader of the text after the marker."""


class ClosingReader(CallReader):
    """Reads up to a `closing` tag that completes the call.

    One of `starts` or the closing tag must follow the opening tag.
    """

    def __init__(self, catalog: ToolCatalog, closing: str, starts: Iterable[str] = ()) -> None:
        super().__init__(catalog)
        self._closing = markers.MarkerSet.of(closing)
        self._starts = markers.MarkerSet.of(closing, *starts)
        self._started = False
        self._has_new_tags = True
        """Whether a tag of another kind was read since the last attempt to parse."""

    @abstractmethod
    def _parse(self, scope: xml.Scope) -> tuple[ParsedCall, ...] | None:
        """The calls in the text so far; empty if there are none, None if more text is needed."""

    def _problem(self) -> str:
        """The problem of the text so far, which is not a valid call."""
        return ""

    def feed(self, text: str) -> Verdict | None:
        """Check what follows the opening tag, then look for the closing one."""
        self._pending += text
        if not self._started:
            hit = self._starts.after_space(self._pending)
            if hit is None or hit.start > _MAX_HEAD:
                return self._reject()
            if hit.marker is None:
                return None
            self._started = True
        return self._search()

    def finish(self, *, truncated: bool) -> Verdict:
        """Parse a call whose closing tag is missing."""
        self._use(len(self._pending))
        if truncated or not self._started:
            return self._reject()
        calls = self._parse(xml.Scope(final=True))
        return self._accept(calls) if calls else self._reject(self._problem())

    def _search(self) -> Verdict | None:
        """Look for the closing tag, and parse up to each one that may be it."""
        while True:
            hit = self._closing.search(self._pending)
            end = len(self._pending) if hit is None else hit.start
            self._has_new_tags = self._has_new_tags or "<" in self._pending[:end]
            if hit is None or hit.marker is None:
                self._use(end)
                return None
            verdict = self._close(end + len(hit.marker))
            if verdict is not None:
                return verdict

    def _close(self, end: int) -> Verdict | None:
        """Parse up to a closing tag that ends at `end`; None if the tag is inside of a value."""
        self._use(end)
        # Else many closing tags in one value would make the work quadratic.
        calls = self._parse(xml.Scope()) if self._has_new_tags else None
        self._has_new_tags = False
        if calls is None:
            return None
        return self._accept(calls) if calls else self._reject(self._problem())


class ElementReader(ClosingReader):
    """Reads after `<name` with the name of a tool."""

    def __init__(self, catalog: ToolCatalog, marker: str) -> None:
        tool = catalog.known(marker[1:]) or ""  # it is known: markers are made of names
        starts = xml.child_starts("", catalog.argument_names(tool))
        super().__init__(catalog, f"</{marker[1:]}>", starts)
        self._marker = marker
        self._open_quote = ""
        self._since_quote = ""
        """The text of the opening tag behind the last attribute's value."""
        self._in_opening_tag = True

    def feed(self, text: str) -> Verdict | None:
        """Read the opening tag, then the rest as any reader with a closing tag."""
        if not self._in_opening_tag:
            return super().feed(text)
        self._pending += text
        if not self._parts and self._pending[0] not in " \t\r\n/>":
            return self._reject()  # the tag has a longer name than the tool
        return self._read_opening_tag()

    def finish(self, *, truncated: bool) -> Verdict:
        """Parse the element, unless even its opening tag is incomplete."""
        return self._reject() if self._in_opening_tag else super().finish(truncated=truncated)

    def _read_opening_tag(self) -> Verdict | None:
        """Look for the `>` that ends the opening tag, outside quotes."""
        pos = 0
        while match := _QUOTES_OR_END.search(self._pending, pos):
            character, pos = match[0], match.end()
            if character == ">":
                if not self._open_quote:
                    return self._enter_element(pos)
            elif self._open_quote in ("", character):  # the other kind of quote is text here
                self._open_quote = "" if self._open_quote else character
                self._since_quote = ""
        if not self._open_quote:
            self._since_quote += self._pending[pos:]
            if not _BETWEEN.fullmatch(self._since_quote):
                return self._reject()
        self._use(len(self._pending))
        return None

    def _enter_element(self, end: int) -> Verdict | None:
        """Go on behind the opening tag, which may be all: `<now/>`."""
        self._use(end)
        self._in_opening_tag = False
        calls = self._parse(xml.Scope())
        if calls is None:
            return super().feed("")
        return self._accept(calls) if calls else self._reject()

    def _parse(self, scope: xml.Scope) -> tuple[ParsedCall, ...] | None:
        element = xml.parse_element(self._marker + self._read, self._catalog, scope)
        return None if element is None else element.calls


class FirstOf(CallReader):
    """Several readers of one marker: the first that reads a call counts."""

    def __init__(
        self, catalog: ToolCatalog, marker: str, factories: Sequence[ReaderFactory]
    ) -> None:
        super().__init__(catalog)
        self._marker = marker
        first, *others = factories
        self._reader = first(catalog, marker)
        self._others = others
        self._problem = ""

    def feed(self, text: str) -> Verdict | None:
        """Let the reader read; the next one begins again at the marker."""
        verdict = self._reader.feed(text)
        while verdict is not None and not verdict.calls and self._others:
            verdict = self._next(verdict).feed(verdict.text + verdict.rest)
        return self._explained(verdict)

    def finish(self, *, truncated: bool) -> Verdict:
        """Let each reader decide in turn."""
        verdict = self._reader.finish(truncated=truncated)
        while not verdict.calls and self._others:
            following = self._next(verdict)
            all_text = verdict.text + verdict.rest
            verdict = following.feed(all_text) or following.finish(truncated=truncated)
        if truncated:
            self._problem = ""  # what is cut off is no mistake
            return Verdict(verdict.text, verdict.calls, verdict.rest)
        return self._explained(verdict) or verdict

    def _next(self, verdict: Verdict) -> CallReader:
        self._problem = self._problem or verdict.problem
        self._reader = self._others.pop(0)(self._catalog, self._marker)
        return self._reader

    def _explained(self, verdict: Verdict | None) -> Verdict | None:
        """The verdict, with the reason of the first reader that has one."""
        if verdict is None or verdict.calls or not self._problem:
            return verdict
        return Verdict(verdict.text, (), verdict.rest, self._problem)

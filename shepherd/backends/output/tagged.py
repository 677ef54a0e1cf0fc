"""Calls between an opening and a closing tag, such as Hermes' `<tool_call>`."""

import re
from enum import Enum, auto

from shepherd.backends.output.bodies import body_starts, parse_body
from shepherd.backends.output.catalog import ParsedCall, ToolCatalog, problem_of
from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.reader import Attempts, CallReader, Verdict
from shepherd.backends.output.repair import JsonScanner, Stop
from shepherd.backends.output.xml import Scope

_BLANK = re.compile(r"\s*(?:`{3,}(?:json|xml|tool_call)?[ \t]*\n\s*)?")
_TAIL = re.compile(r"[\s}\];,`]*")
_NAME_END = re.compile(r"(?::\d*|\.\w*)?\s*(?:[<({`]|\Z)")
_MAX_HEAD = 256
_CLOSED = Scope(closed=True)


class _State(Enum):
    HEAD = auto()  # only whitespace so far
    JSON = auto()  # inside a JSON value
    TAIL = auto()  # after a valid JSON value
    RAW = auto()  # inside anything else: wait for the closing tag


class TaggedReader(CallReader):
    """Reads the body of a tag: JSON values, or any format that `parse_body` knows.

    A closing tag inside a JSON string is part of the string, unless a line ends directly after it:
    then the string was left open. Without a closing tag the body ends with its JSON or the output.
    """

    def __init__(self, catalog: ToolCatalog, closing: str) -> None:
        super().__init__()
        self._catalog = catalog
        self._closes = MarkerSet.of(closing)
        self._state = _State.HEAD
        self._scanner = JsonScanner()
        self._scanned = 0  # the length of the pending text that the JSON scanner has read
        self._value_start = 0  # the index where the current JSON value begins
        self._calls: tuple[ParsedCall, ...] = ()
        self._fallback: tuple[int, int] | None = None  # first closing tag inside a string
        self._length = 0
        self._tried = Attempts()

    def feed(self, text: str) -> Verdict | None:
        self._pending += text
        more: Verdict | bool = True
        while more is True:
            more = self._step()
        return more or None

    def _step(self) -> Verdict | bool:
        """Continue in the present state: a verdict, True to step again, False to wait for text."""
        match self._state:
            case _State.HEAD:
                return self._head()
            case _State.JSON:
                return self._json()
            case _State.TAIL:
                return self._tail()
            case _State.RAW:
                return self._raw()

    def finish(self, *, truncated: bool) -> Verdict:
        if self._state is _State.TAIL:
            return self._accept(self._calls)
        if self._state is _State.HEAD or truncated:
            self._take(len(self._pending))
            return self._reject()
        self._take(len(self._pending))
        if self._fallback is not None:
            return self._finish_at(*self._fallback)
        calls = parse_body(self._value, self._catalog, Scope(final=True))
        if calls:
            return self._accept(self._calls + calls)
        return self._reject(problem_of(self._value, self._catalog))

    def _finish_at(self, start: int, end: int) -> Verdict:
        """End at a closing tag inside of a string that was never closed."""
        text = self._read
        calls = parse_body(text[:start], self._catalog, Scope(final=True)) or ()
        return Verdict(text[:end], calls, text[end:])

    @property
    def _value(self) -> str:
        return "".join(self._parts[self._value_start :])

    def _take(self, length: int) -> None:
        self._use(length)
        self._length += length

    def _head(self) -> Verdict | bool:
        """Decide by its beginning what kind of body it is, or that it is none."""
        blank = _BLANK.match(self._pending)
        start = blank.end() if blank else 0
        head = self._pending[start : start + _MAX_HEAD]
        if start > _MAX_HEAD:
            return self._reject()
        if not head or (head[0] == "`" and "\n" not in head and len(head) < len("```tool_call\n")):
            return False
        if head[0] in "{[":
            self._take(start)
            self._start_json()
            return True
        hit = body_starts(self._catalog.names).at(head, 0)
        if hit is None:
            return self._reject()
        if hit.marker is None:
            return False
        if not hit.marker.startswith("<"):  # a bare name: matching text must follow
            behind = _NAME_END.match(head, len(hit.marker))
            if behind is None or behind.end() == len(head):
                wait = behind is not None and len(head) < _MAX_HEAD
                return False if wait else self._reject()
        self._state = _State.RAW
        return True

    def _start_json(self) -> None:
        self._state = _State.JSON
        self._scanner = JsonScanner()
        self._scanned = 0
        self._value_start = len(self._parts)

    def _json(self) -> Verdict | bool:
        """Follow a JSON value."""
        stop, at = self._scanner.scan(self._pending, self._scanned)
        self._scanned = 0
        if stop is Stop.MORE:
            self._take(at)
            return False
        if stop is Stop.TOO_DEEP:
            self._state = _State.RAW
        elif stop is Stop.CLOSED:
            self._take(at)
            return self._value_closed()
        elif stop is Stop.ANGLE:
            return self._angle(at)
        else:
            self._scanned = at
        return True

    def _value_closed(self) -> bool:
        calls = parse_body(self._value, self._catalog, _CLOSED) or ()
        self._calls += calls
        self._state = _State.TAIL if calls else _State.RAW
        return True

    def _angle(self, at: int) -> Verdict | bool:
        """A `<` in a JSON value: the closing tag, a part of a string, or not yet known."""
        hit = self._closes.at(self._pending, at)
        if hit is None:
            self._scanner.skip_angle()
            self._scanned = at + 1
            return True
        end = at + len(hit.marker or "")
        if hit.marker is None or (self._scanner.quote and end == len(self._pending)):
            self._take(at)
            return False
        if not self._scanner.quote or self._pending[end] == "\n":
            return self._close(at, end)
        if self._fallback is None:
            self._fallback = (self._length + at, self._length + end)
        self._scanner.skip_angle()
        self._scanned = at + 1
        return True

    def _tail(self) -> Verdict | bool:
        """Behind a JSON value: the closing tag, another value, or the end of the calls."""
        match = _TAIL.match(self._pending)
        start = match.end() if match else 0
        if start > _MAX_HEAD:
            return self._accept(self._calls)
        if start == len(self._pending):
            return False
        hit = self._closes.at(self._pending, start)
        if hit is not None and hit.marker is None:
            return False
        if hit is not None and hit.marker is not None:
            self._take(start + len(hit.marker))
        elif self._pending[start : start + 1] == "{":
            self._take(start)
            self._start_json()
            return True
        return self._accept(self._calls)

    def _raw(self) -> Verdict | bool:
        hit = self._closes.search(self._pending)
        start = len(self._pending) if hit is None else hit.start
        self._tried.see(self._pending[:start])
        if hit is None or hit.marker is None:
            self._take(start)
            return False
        return self._close(start, start + len(hit.marker))

    def _close(self, start: int, end: int) -> Verdict | bool:
        """Parse what stands before a closing tag; a tag inside of a value goes on."""
        self._take(start)
        body = self._value if self._tried.worth_it() else ""
        calls = parse_body(body, self._catalog, _CLOSED) if body else None
        self._take(end - start)
        if calls is None:
            return True
        if calls:
            return self._accept(self._calls + calls)
        return self._reject(problem_of(body, self._catalog))

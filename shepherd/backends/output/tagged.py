"""Calls between an opening and a closing tag, such as Hermes' `<tool_call>`."""

import re
from collections.abc import Callable

from shepherd.backends.output import bodies, reader, repair, style, xml
from shepherd.backends.output.catalog import ParsedCall, ToolCatalog, problem_of
from shepherd.backends.output.known import SPACES

_WRAPPERS = {
    "<tool_call>": "</tool_call>",
    "<tool_calls>": "</tool_calls>",
    "<tools>": "</tools>",
    "<function_calls>": "</function_calls>",
    "<function_call>": "</function_call>",
    "<minimax:tool_call>": "</minimax:tool_call>",
    "<seed:tool_call>": "</seed:tool_call>",
    "<TOOLCALL>": "</TOOLCALL>",
    "<|tool_call>": "<tool_call|>",
    "<start_function_call>": "<end_function_call>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|START_ACTION|>": "<|END_ACTION|>",
    "<|tools_prefix|>": "<|tools_suffix|>",
    "<|action_start|><|plugin|>": "<|action_end|>",
    "<longcat_tool_call>": "</longcat_tool_call>",
    "<dots_function_call>": "</dots_function_call>",
    **{
        f"<{space}{word}>": f"</{space}{word}>"
        for space in SPACES
        for word in ("function_calls", "tool_calls")
    },
}
_PREFIXES = {
    "[TOOL_CALLS]": "[/TOOL_CALLS]",
    "<|python_start|>": "<|python_end|>",
    "<|python_tag|>": "<|eom_id|>",
    "<|tool_call|>": "<|/tool_call|>",
    "<|function_call|>": "<|message_sep|>",
    "<|message_sep|>\n\nfunction call<|role_sep|>\n": "<|message_sep|>",
}
TAGS = {
    style.CallFormat.TAGGED: _WRAPPERS,
    style.CallFormat.PREFIXED: _PREFIXES,
}
CLOSINGS = _WRAPPERS | _PREFIXES
"""The closing tag of each opening tag, by format and of all formats."""

_BLANK = re.compile(r"\s*(?:`{3,}(?:json|xml|python|tool_call)?[ \t]*\n\s*)?")
_TAIL = re.compile(r"[\s}\];,`]*")
_NAME_END = re.compile(r"(?::\d*|\.\w*)?\s*(?:[<({`]|\Z)")
_MAX_HEAD = 256
_CLOSED = xml.Scope(closed=True)


class TaggedReader(reader.ClosingReader):
    """Reads the body of a tag: JSON values, or any format that `parse_body` knows.

    A closing tag inside a JSON string is part of the string, unless a line ends directly after it:
    then the string was left open. Without a closing tag the body ends with its JSON or the output.
    """

    def __init__(self, catalog: ToolCatalog, marker: str, closing: str = "") -> None:
        self._tag = closing or CLOSINGS[marker]
        super().__init__(catalog, self._tag)
        # The method that reads next. It is not bound, so that no cycle keeps the reader alive.
        self._step: Callable[[TaggedReader], reader.Verdict | bool] = TaggedReader._read_head
        self._scanner = repair.JsonScanner()
        self._scanned = 0
        """So much of the pending text was read by the scanner."""
        self._parts_before_value = 0
        """So many parts come before the current JSON value."""
        self._calls: tuple[ParsedCall, ...] = ()
        self._tag_in_string: tuple[int, int] | None = None
        """Where the first closing tag inside of a string begins and ends."""

    def feed(self, text: str) -> reader.Verdict | None:
        """Step as far as the text allows.

        Each step returns a verdict, True to go on with the next step, or False to wait for text.
        """
        self._pending += text
        verdict_or_more: reader.Verdict | bool = True
        while verdict_or_more is True:
            verdict_or_more = self._step(self)
        return verdict_or_more or None

    def finish(self, *, truncated: bool) -> reader.Verdict:
        """Decide about a body without its closing tag."""
        if self._step is TaggedReader._read_tail:
            if _TAIL.fullmatch(self._pending):
                self._use(len(self._pending))
            return self._accept(self._calls)
        if self._tag_in_string is None or truncated:
            return super().finish(truncated=truncated)
        # The string was never closed: the call ends at the closing tag inside of it.
        self._use(len(self._pending))
        text, (tag_start, tag_end) = self._read, self._tag_in_string
        calls = bodies.parse_body(text[:tag_start], self._catalog, xml.Scope(final=True)) or ()
        return reader.Verdict(text[:tag_end], calls, text[tag_end:])

    @property
    def _value(self) -> str:
        """The JSON value that was read last, or the whole body if it is not JSON."""
        return "".join(self._parts[self._parts_before_value :])

    def _parse(self, scope: xml.Scope) -> tuple[ParsedCall, ...] | None:
        if scope.final:  # no closing tag was read
            calls = bodies.parse_body(self._value, self._catalog, scope)
        else:
            calls = bodies.parse_body(self._value.removesuffix(self._tag), self._catalog, _CLOSED)
        return calls and (*self._calls, *calls)

    def _problem(self) -> str:
        return problem_of(self._value.removesuffix(self._tag), self._catalog)

    def _read_head(self) -> reader.Verdict | bool:
        """Decide by its beginning what kind of body it is, or that it is none."""
        blank = _BLANK.match(self._pending)
        start = blank.end() if blank else 0
        head = self._pending[start : start + _MAX_HEAD]
        if start > _MAX_HEAD:
            return self._reject()
        may_be_fence = head[:1] == "`" and "\n" not in head and len(head) < len("```tool_call\n")
        if not head or may_be_fence:
            return False
        if head[0] in "{[":
            self._start_json(start)
            return True
        hit = bodies.body_starts(self._catalog.names).at(head, 0)
        if hit is None:
            return self._reject()
        if hit.marker is None:
            return False
        if not hit.marker.startswith("<"):  # a bare name: matching text must follow
            behind = _NAME_END.match(head, len(hit.marker))
            if behind is None:
                return self._reject()
            if behind.end() == len(head):  # what follows the name has not arrived
                return False if len(head) < _MAX_HEAD else self._reject()
        self._started = True
        self._step = TaggedReader._read_raw
        return True

    def _start_json(self, at: int) -> None:
        """Begin a JSON value at this place of the pending text."""
        self._use(at)
        self._started = True
        self._step = TaggedReader._read_json
        self._scanner = repair.JsonScanner()
        self._scanned = 0
        self._parts_before_value = len(self._parts)

    def _read_raw(self) -> reader.Verdict | bool:
        """Wait for the closing tag of a body that is not JSON."""
        return self._search() or False

    def _read_json(self) -> reader.Verdict | bool:
        """Follow a JSON value."""
        stop, at = self._scanner.scan(self._pending, self._scanned)
        self._scanned = 0
        match stop:
            case repair.Stop.MORE:
                self._use(at)
                return False
            case repair.Stop.TOO_DEEP:
                self._step = TaggedReader._read_raw
            case repair.Stop.CLOSED:
                self._use(at)
                calls = bodies.parse_body(self._value, self._catalog, _CLOSED) or ()
                self._calls += calls
                # A value that is no call may be the beginning of something else.
                self._step = TaggedReader._read_tail if calls else TaggedReader._read_raw
            case repair.Stop.ANGLE:
                return self._angle(at)
            case repair.Stop.KEY | repair.Stop.VALUE:
                self._scanned = at
        return True

    def _angle(self, at: int) -> reader.Verdict | bool:
        """A `<` in a JSON value: the closing tag, a part of a string, or not yet known."""
        hit = self._closing.at(self._pending, at)
        if hit is not None:
            end = at + len(hit.marker or "")
            in_string = bool(self._scanner.quote)
            if hit.marker is None or (in_string and end == len(self._pending)):
                self._use(at)
                return False  # more text must show what it is
            if not in_string or self._pending[end] == "\n":
                return self._close(end) or True
            if self._tag_in_string is None:
                read_length = len(self._read)
                self._tag_in_string = (read_length + at, read_length + end)
        self._scanned = self._scanner.skip_angle(at)
        return True

    def _read_tail(self) -> reader.Verdict | bool:
        """Behind a JSON value: the closing tag, another value, or the end of the calls."""
        match = _TAIL.match(self._pending)
        start = match.end() if match else 0
        if start > _MAX_HEAD:
            return self._accept(self._calls)
        if start == len(self._pending):
            return False
        hit = self._closing.at(self._pending, start)
        if hit is not None:
            if hit.marker is None:
                return False
            self._use(start + len(hit.marker))
        elif self._pending[start] == "{":
            self._start_json(start)
            return True
        return self._accept(self._calls)

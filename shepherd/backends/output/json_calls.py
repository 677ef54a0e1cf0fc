"""Readers of calls as JSON: alone, in a code fence, behind Mistral's marker."""

import re
from abc import abstractmethod

from shepherd.backends.output import bodies, reader, repair
from shepherd.backends.output.catalog import ToolCatalog, problem_of

CALL_KEYS = ("name", "function", "type", "id", "arguments", "parameters")
_MAX_INDENT = 64

FENCED_LANGUAGES = frozenset({"", "json", "tool_call", "tool_code", "tool"})

_NAME = re.compile(r"[^\s\[\]{}]*")
_BEFORE_ARGUMENTS = re.compile(r"\s*(?:\[CALL_ID\][\w-]*)?\s*(?:\[ARGS\])?\s*")
_BEGINS_OBJECTS = re.compile(r"\[?\s*\{")
_MAX_MISTRAL_HEAD = 256


class JsonReader(reader.CallReader):
    """Follows JSON with certain keys as long as it can still be a call to an offered tool."""

    def __init__(self, catalog: ToolCatalog, keys: tuple[str, ...]) -> None:
        super().__init__(catalog)
        self._keys = keys
        self._checks_keys = True
        self._scanner = repair.JsonScanner()
        self._started = False
        self._whole_json = ""
        """"" until the JSON has ended."""

    @abstractmethod
    def _starts(self, head: str) -> bool | None:
        """Whether `head`, without space before it, begins a call; None if more text is needed."""

    @abstractmethod
    def _read_behind(self) -> reader.Verdict | None:
        """Decide after the end of the JSON; None if more text is needed."""

    def feed(self, text: str) -> reader.Verdict | None:
        """Check how the text begins, then follow its JSON, then what stands behind that."""
        self._pending += text
        if not self._started:
            head = self._pending.lstrip()
            is_indented = len(self._pending) - len(head) > _MAX_INDENT
            if is_indented:
                return self._reject()
            starts = self._starts(head) if head else None
            if not starts:
                return None if starts is None else self._reject()
            self._started = True
        if not self._whole_json:
            if not self._scan():
                return self._reject()
            if not self._whole_json:
                return None
        return self._read_behind()

    def _scan(self) -> bool:
        """Read on; returns whether it can still be a call."""
        pos = 0
        while True:
            stop, pos = self._scanner.scan(self._pending, pos)
            if stop is repair.Stop.CLOSED:
                self._use(pos)
                self._whole_json = self._read
                return True
            if stop is repair.Stop.MORE:
                if not self._word_may_fit():
                    return False
                self._use(pos)
                return True
            if stop is repair.Stop.ANGLE:
                pos = self._scanner.skip_angle(pos)
                if not self._scanner.quote:  # JSON has no `<` outside of strings
                    return False
            elif stop is repair.Stop.TOO_DEEP or not self._fits(stop):
                return False

    def _fits(self, stop: repair.Stop) -> bool:
        """Whether the key or the value that has just ended can be one of a call."""
        scanner = self._scanner
        if not self._checks_keys:
            return True
        if stop is repair.Stop.KEY:
            return scanner.word in self._keys
        if scanner.key == "type":
            return scanner.word == "function"
        return scanner.key not in ("name", "function") or bool(self._catalog.known(scanner.word))

    def _word_may_fit(self) -> bool:
        """Whether more text can turn the unfinished word into one that fits."""
        scanner = self._scanner
        if not (self._checks_keys and scanner.in_outer_string):
            return True
        if scanner.at_key:
            return any(key.startswith(scanner.word) for key in self._keys)
        is_name = scanner.key in ("name", "function")
        return not is_name or self._catalog.may_become_known(scanner.word)


class BareJsonReader(JsonReader):
    """Reads after `{` or `[`: an object with a tool's name and arguments, or a list of them.

    A list of calls in Python's notation counts too. An object without arguments is only an object.
    """

    def __init__(self, catalog: ToolCatalog, marker: str) -> None:
        super().__init__(catalog, CALL_KEYS)
        self._bracket = marker[-1]
        self._scanner.scan(self._bracket, 0)

    def finish(self, *, truncated: bool) -> reader.Verdict:
        """Try to repair JSON that has not ended."""
        return self._reject() if truncated or not self._started else self._read_behind()

    def _read_behind(self) -> reader.Verdict:
        text = self._bracket + self._read
        calls = self._catalog.from_json_text(text, explicit=True)
        if not calls and self._bracket == "[":
            calls = bodies.parse_pythonic(text, self._catalog)
        return self._accept(calls) if calls else self._reject(problem_of(text, self._catalog))

    def _starts(self, head: str) -> bool | None:
        if self._bracket == "{":
            return head[0] in "\"'"
        if head[0] == "{":
            return True
        python_calls = [f"{name}(" for name in self._catalog.names]
        if any(head.startswith(beginning) for beginning in python_calls):
            self._checks_keys = False  # it is no JSON, but has the same brackets and quotes
            return True
        return None if any(beginning.startswith(head) for beginning in python_calls) else False


class FencedCallReader(JsonReader):
    """Reads after the opening line of a fence, up to and including its closing line.

    The block must be exactly one object of a tool's name and its arguments.
    """

    def __init__(self, catalog: ToolCatalog, fence: str) -> None:
        super().__init__(catalog, ("name", "arguments", "parameters"))
        char = re.escape(fence[0])
        self._closing_line = re.compile(rf"\s*\n[ \t]*{char}{{{len(fence)},}}[ \t]*(?=\r?\n)")
        self._may_become_closing = re.compile(rf"\s*(?:\n[ \t]*{char}*[ \t]*\r?)?")

    def finish(self, *, truncated: bool) -> reader.Verdict:
        """Take complete JSON for the whole block, although its closing line is missing."""
        if not self._whole_json:
            return self._reject()
        self._use(len(self._pending))
        return self._settle()

    def _starts(self, head: str) -> bool:
        return head[0] == "{"

    def _read_behind(self) -> reader.Verdict | None:
        closing = self._closing_line.match(self._pending)
        if closing is None:
            may_close = self._may_become_closing.fullmatch(self._pending)
            return None if may_close else self._reject()
        self._use(closing.end())
        return self._settle()

    def _settle(self) -> reader.Verdict:
        calls = self._catalog.from_json_text(self._whole_json, explicit=True)
        return self._accept(calls) if len(calls) == 1 else self._reject()

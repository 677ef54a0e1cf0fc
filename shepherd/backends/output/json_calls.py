"""Readers of calls as JSON: alone, in a code fence, behind Mistral's marker."""

import re
from abc import abstractmethod

from shepherd.backends.output.bodies import parse_pythonic
from shepherd.backends.output.catalog import ToolCatalog, problem_of, problem_of_arguments
from shepherd.backends.output.reader import CallReader, Verdict
from shepherd.backends.output.repair import JsonScanner, Stop

CALL_KEYS = ("name", "function", "type", "id", "arguments", "parameters")
_MAX_HEAD = 64

FENCED_LANGUAGES = frozenset({"", "json", "tool_call", "tool_code", "tool"})

_NAME = re.compile(r"[^\s\[\]{}]*")
_BEFORE_ARGUMENTS = re.compile(r"\s*(?:\[CALL_ID\][\w-]*)?\s*(?:\[ARGS\])?\s*")
_BEGINS_OBJECT = re.compile(r"\{")
_BEGINS_OBJECTS = re.compile(r"\[?\s*\{")
_MAX_MISTRAL_HEAD = 256


class JsonReader(CallReader):
    """Follows JSON with certain keys as long as it can still be a call to an offered tool."""

    def __init__(self, catalog: ToolCatalog, keys: tuple[str, ...]) -> None:
        super().__init__(catalog)
        self._keys = keys
        self._checks_keys = True
        self._scanner = JsonScanner()
        self._started = False
        self._json = ""  # all of it, as soon as it has ended

    @abstractmethod
    def _starts(self) -> bool | None:
        """Whether it begins like a call; None if more text is needed."""

    @abstractmethod
    def _behind(self) -> Verdict | None:
        """Decide after the end of the JSON; None if more text is needed."""

    def feed(self, text: str) -> Verdict | None:
        self._pending += text
        if not self._started:
            starts = self._starts()
            if not starts:
                return None if starts is None else self._reject()
            self._started = True
        if not self._json:
            if not self._scan():
                return self._reject()
            if not self._json:
                return None
        return self._behind()

    def _scan(self) -> bool:
        """Read on; returns whether it can still be a call."""
        pos = 0
        while True:
            stop, pos = self._scanner.scan(self._pending, pos)
            if stop is Stop.CLOSED:
                self._use(pos)
                self._json = self._read
                return True
            if stop is Stop.MORE:
                if not self._may_go_on():
                    return False
                self._use(pos)
                return True
            if stop is Stop.ANGLE:
                self._scanner.skip_angle()
                pos += 1
                if not self._scanner.quote:
                    return False
            elif stop is Stop.TOO_DEEP or not self._fits(stop):
                return False

    def _fits(self, stop: Stop) -> bool:
        """Whether the key or the value that has just ended can be one of a call."""
        scanner = self._scanner
        if not self._checks_keys:
            return True
        if stop is Stop.KEY:
            return scanner.word in self._keys
        if scanner.key == "type":
            return scanner.word == "function"
        return scanner.key not in ("name", "function") or bool(self._catalog.known(scanner.word))

    def _may_go_on(self) -> bool:
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

    def finish(self, *, truncated: bool) -> Verdict:
        return self._reject() if truncated or not self._started else self._behind()

    def _behind(self) -> Verdict:
        text = self._bracket + self._read
        calls = self._catalog.from_json_text(text, explicit=True)
        if not calls and self._bracket == "[":
            calls = parse_pythonic(text, self._catalog)
        return self._accept(calls) if calls else self._reject(problem_of(text, self._catalog))

    def _starts(self) -> bool | None:
        head = self._pending.lstrip()
        if len(self._pending) - len(head) > _MAX_HEAD:
            return False
        if not head:
            return None
        if self._bracket == "{":
            return head[0] in "\"'"
        if head[0] == "{":
            return True
        names = [f"{name}(" for name in self._catalog.names]
        if any(head.startswith(name) for name in names):
            self._checks_keys = False
            return True
        return None if any(name.startswith(head) for name in names) else False


class FencedCallReader(JsonReader):
    """Reads after the opening line of a fence, up to and including its closing line.

    The block must be exactly one object of a tool's name and its arguments.
    """

    def __init__(self, catalog: ToolCatalog, fence: str) -> None:
        super().__init__(catalog, ("name", "arguments", "parameters"))
        char = re.escape(fence[0])
        self._closing = re.compile(rf"\s*\n[ \t]*{char}{{{len(fence)},}}[ \t]*(?=\r?\n)")
        self._at_end = re.compile(rf"\s*(?:\n[ \t]*{char}*[ \t]*\r?)?")

    def finish(self, *, truncated: bool) -> Verdict:
        if not self._json:
            return self._reject()
        self._use(len(self._pending))
        return self._settle()

    def _starts(self) -> bool | None:
        head = self._pending.lstrip()
        if len(self._pending) - len(head) > _MAX_HEAD:
            return False
        return head[0] == "{" if head else None

    def _behind(self) -> Verdict | None:
        closing = self._closing.match(self._pending)
        if closing is None:
            return None if self._at_end.fullmatch(self._pending) else self._reject()
        self._use(closing.end())
        return self._settle()

    def _settle(self) -> Verdict:
        calls = self._catalog.from_json_text(self._json, explicit=True)
        return self._accept(calls) if len(calls) == 1 else self._reject()


class MistralReader(CallReader):
    """Reads after `[TOOL_CALLS]`; the name is empty if a list or an object follows directly."""

    def __init__(self, catalog: ToolCatalog, marker: str) -> None:
        super().__init__(catalog)
        self._name: str | None = None
        self._scanner = JsonScanner()
        self._start = 0

    def feed(self, text: str) -> Verdict | None:
        self._pending += text
        if self._name is None:
            if not self._head_possible():
                return self._reject()
            if self._name is None:
                return None
        stop, end = self._scanner.scan_to_end(self._pending, 0)
        if stop is Stop.TOO_DEEP:
            return self._reject()
        self._use(end)
        return self._settle() if stop is Stop.CLOSED else None

    def finish(self, *, truncated: bool) -> Verdict:
        return self._reject() if truncated or self._name is None else self._settle()

    def _settle(self) -> Verdict:
        text = "".join(self._parts[self._start :])
        if self._name:
            calls = self._catalog.from_arguments_text(self._name, text)
            problem = "" if calls else problem_of_arguments(self._name, text, self._catalog)
        else:
            calls = self._catalog.from_json_text(text)
            problem = "" if calls else problem_of(text, self._catalog)
        return self._accept(calls) if calls else self._reject(problem)

    def _head_possible(self) -> bool:
        """Whether the text so far can begin a call; after the head, the name is set."""
        head = self._pending.lstrip()
        match = _NAME.match(head)
        name = match.group() if match else ""
        rest = head[len(name) :]
        if not rest:
            return len(self._pending) <= _MAX_MISTRAL_HEAD and self._catalog.may_become_known(name)
        if name and self._catalog.known(name) is None:
            return False
        before = _BEFORE_ARGUMENTS.match(rest) if name else None
        arguments = rest[before.end() :] if before else rest
        start = len(self._pending) - len(arguments)
        if start > _MAX_MISTRAL_HEAD:
            return False
        if (_BEGINS_OBJECT if name else _BEGINS_OBJECTS).match(arguments):
            self._use(start)
            self._name, self._start = name, len(self._parts)
            return True
        if name:
            return any(m.startswith(arguments) for m in ("[CALL_ID]", "[ARGS]"))
        return not arguments.strip("[ \n")

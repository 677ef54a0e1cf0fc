"""Mistral's calls: `[TOOL_CALLS]name[ARGS]{…}` and `[TOOL_CALLS][{…}, …]`."""

import re

from shepherd.backends.output.calls.catalog import ToolCatalog
from shepherd.backends.output.calls.diagnose import problem_of, problem_of_arguments
from shepherd.backends.output.calls.reader import CallReader, Verdict
from shepherd.backends.output.calls.repair import JsonScanner, Stop

_NAME = re.compile(r"[^\s\[\]{}]*")
_BEFORE_ARGUMENTS = re.compile(r"\s*(?:\[CALL_ID\][\w-]*)?\s*(?:\[ARGS\])?\s*")
_BEGINS_OBJECT = re.compile(r"\{")
_BEGINS_OBJECTS = re.compile(r"\[?\s*\{")
_MAX_HEAD = 256


class MistralReader(CallReader):
    """Reads after `[TOOL_CALLS]`; the name is empty if a list or an object follows directly."""

    def __init__(self, catalog: ToolCatalog, marker: str) -> None:
        super().__init__()
        self._catalog = catalog
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
        stop, pos = Stop.MORE, 0
        while pos < len(self._pending):
            stop, pos = self._scanner.scan(self._pending, pos)
            if stop is Stop.TOO_DEEP:
                return self._reject()
            if stop is Stop.CLOSED:
                self._use(pos)
                return self._settle()
            if stop is Stop.ANGLE:
                self._scanner.skip_angle()
                pos += 1
        self._use(len(self._pending))
        return None

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
            return len(self._pending) <= _MAX_HEAD and self._catalog.may_become_known(name)
        if name and self._catalog.known(name) is None:
            return False
        before = _BEFORE_ARGUMENTS.match(rest) if name else None
        arguments = rest[before.end() :] if before else rest
        start = len(self._pending) - len(arguments)
        if start > _MAX_HEAD:
            return False
        if (_BEGINS_OBJECT if name else _BEGINS_OBJECTS).match(arguments):
            self._use(start)
            self._name, self._start = name, len(self._parts)
            return True
        if name:
            return any(m.startswith(arguments) for m in ("[CALL_ID]", "[ARGS]"))
        return not arguments.strip("[ \n")

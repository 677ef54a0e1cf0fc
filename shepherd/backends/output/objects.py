"""Reading calls that are objects of JSON: between tags, at the start of a line, in a fence."""

import re
from functools import partial

from shepherd.backends.output.catalog import CALL_KEYS, ParsedCall, ToolCatalog, problem_of
from shepherd.backends.output.notation import Notation
from shepherd.backends.output.scan import MAX_SPACE, CutError, Scanned, Steps

_FENCE = re.compile(r"\s*`{3,}(?:json|xml|python|tool_call)?[ \t]*\n")
_JUNK = re.compile(r"[\s}\];,`]*")


class ObjectReader(Scanned):
    """Steps that read objects with a tool's name and arguments, and the calls so far."""

    def __init__(self, catalog: ToolCatalog, marker: str) -> None:
        super().__init__(marker)
        self._catalog = catalog
        self._calls: tuple[ParsedCall, ...] = ()
        self._behind_calls: int = 0
        """Where the last whole call ends."""
        self._problem: str = ""

    def _note(self, problem: str) -> None:
        self._problem = self._problem or problem

    def _add(self, calls: tuple[ParsedCall, ...]) -> None:
        self._calls += calls
        self._behind_calls = self._pos

    def _objects(self, notation: Notation) -> Steps:
        """Read objects of JSON or lists of them, with the name in each, up to the closing tag."""
        begin = notation.lead.partition("{")[0].rstrip(" \n[")
        closing = notation.closing
        if not (yield from self._literal(begin)):
            return False
        yield from self._fence()
        if not begin and not (yield from self._begins_call()):
            return False
        opening: tuple[str, ...] = ("{", "[")
        while (yield from self._char()) in opening:
            opening = ("{",)
            if not (yield from self._object(closing)):
                return False
            if begin and (yield from self._behind_objects(closing)):
                break
        return True

    def _fence(self) -> Steps:
        """Read the line that opens a fence, if one follows."""
        if (yield from self._char()) != "`":
            return False
        while (self._text.find("\n", self._pos) < 0) and len(self._text) - self._pos < MAX_SPACE:
            if not (yield from self._more()):
                return False
        match = _FENCE.match(self._text, self._pos)
        self._pos = match.end() if match else self._pos
        return match is not None

    def _behind_objects(self, closing: str) -> Steps:
        """Read the closing tag, with brackets and separators too many before it."""
        while junk := _JUNK.match(self._text, self._pos):
            if junk.end() < len(self._text) or len(junk[0]) > MAX_SPACE:
                break
            if not (yield from self._more()):
                break
        self._pos = junk.end() if junk else self._pos
        is_over = self._pos == len(self._text) or bool(
            closing and (yield from self._literal(closing))
        )
        self._behind_calls = self._pos if is_over else self._behind_calls
        return is_over

    def _object(self, closing: str) -> Steps:
        """Read one value of JSON that must be calls, or else all up to the closing tag."""
        start = self._pos
        if not (yield from self._json(closing)):
            self._pos = start
        calls = self._from_json(self._value, is_bare=not closing) if self._pos > start else ()
        if not calls:  # what looked like the end may have been in a string
            if closing:
                yield from self._find(closing)
            text = self._text[start : self._pos]
            calls = self._from_json(text, is_bare=not closing)
            if not calls:
                self._note(problem_of(text, self._catalog))
        self._add(calls)
        return bool(calls)

    def _from_json(self, text: str, *, is_bare: bool) -> tuple[ParsedCall, ...]:
        return self._catalog.from_json_text(text.strip(), explicit=is_bare)

    def _begins_call(self) -> Steps:
        """Whether the first keys of an object, or of the first in a list, are those of a call."""
        start = self._pos
        yield from self._literal("[")
        if not (yield from self._literal("{")):
            return False
        while True:
            key = yield from self._quoted(lambda word: any(k.startswith(word) for k in CALL_KEYS))
            if key not in CALL_KEYS or not (yield from self._literal(":")):
                return False
            char = yield from self._char()
            if key in ("arguments", "parameters") or (key == "function" and char == "{"):
                self._pos = start
                return True
            if char in ("'", '"'):
                word = yield from self._quoted(partial(self._may_be, key))
                if key != "id" and word != "function" and not self._catalog.known(word):
                    return False
            elif key != "id" or not (yield from self._until(",}")):
                return False
            if not (yield from self._literal(",")):
                return False

    def _may_be(self, key: str, word: str) -> bool:
        """Whether a value that begins so may be that of this key in a call."""
        if key == "type":
            return "function".startswith(word)
        return key == "id" or self._catalog.may_become_known(word)

    def _fenced(self, fence: str) -> Steps:
        """Read a block of nothing but calls, up to and including its closing line."""
        char = re.escape(fence[0])
        closing = re.compile(rf"\s*\n[ \t]*{char}{{{len(fence)},}}[ \t]*(?=\r?\n)")
        may_be = re.compile(rf"\s*(?:\n[ \t]*{char}*[ \t]*\r?)?")
        try:
            if not (yield from self._begins_call()) or not (yield from self._json("")):
                return False
            end, calls = self._pos, self._catalog.from_json_text(self._value, explicit=True)
            if not calls:
                return False
            self._calls, self._pos = calls, len(self._text)
            while not (line := closing.match(self._text, end)):
                self._pos = len(self._text)
                if not may_be.fullmatch(self._text, end):
                    return False
                if not (yield from self._more()):
                    return True
        except CutError:
            return bool(self._calls)
        self._pos = line.end()
        return True

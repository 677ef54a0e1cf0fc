"""The reader of calls that a description tells, whatever the family."""

import re
from collections.abc import Generator
from html import unescape
from typing import Any, cast

from shepherd.backends.output import reader, repair
from shepherd.backends.output.catalog import (
    ParsedCall,
    ToolCatalog,
    from_text,
    problem_of_arguments,
    properties,
    unknown_tool,
)
from shepherd.backends.output.elements import nested_value, trimmed
from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.notation import (
    FROM_0,
    FROM_1,
    HOLES,
    ID,
    ID_PATTERN,
    KEY,
    NAME,
    NUMBER_PATTERN,
    TYPE,
    Fields,
    Language,
    Notation,
)
from shepherd.messages import JsonObject

_HOLES = {
    ID: re.compile(ID_PATTERN),
    FROM_0: re.compile(NUMBER_PATTERN),
    FROM_1: re.compile(NUMBER_PATTERN),
    TYPE: re.compile(r"[\w-]{1,32}"),
}
_NAME = re.compile(r"[\w.:-]+")
_WORD_END = re.compile(r"[\s<>(){}\[\]\"'=]")
_MAX_SPACE = 256

Steps = Generator[None, None, bool]
"""Steps that wait for text at each `yield`; True if what they look for is there."""


class NotationReader(reader.CallReader):
    """Reads calls as their description says, with any whitespace between the parts.

    A value ends at its closing text if another argument or the call's end follows, so that markup
    may stand in it. Ends of calls may be missing where another call or the output's end follows.
    """

    def __init__(self, catalog: ToolCatalog, marker: str, notation: Notation) -> None:
        super().__init__(catalog)
        self._notation = notation
        self._pending = marker
        begins = notation.lead.lstrip().startswith(marker)
        self._lead = f"{notation.begin}\n{notation.open}" if begins else notation.open
        self._marker_length = len(marker)
        self._is_final = False
        self._calls: tuple[ParsedCall, ...] = ()
        self._after_calls = 0
        """So many parts are whole calls, when another one has begun."""
        self._problem = ""
        self._has_arguments = False
        """Whether the arguments of the last call have begun."""
        self._tool = ""
        self._word = ""
        self._value = ""
        """What was read last: a tool, a key or a word for a type, and a value."""
        fields = notation.fields
        ends = [notation.close, notation.end, notation.between + notation.open, notation.lead]
        cores = [_first_part(text) for text in ends]
        following = [*cores, *([_first_part(fields.open + KEY)] if fields else [])]
        self._after_value = MarkerSet.of(*filter(None, following))
        self._after_call = MarkerSet.of(*filter(None, cores))
        self._steps: Steps | None = self._read_calls()

    def feed(self, text: str) -> reader.Verdict | None:
        """Go on as far as the text allows."""
        self._pending += text
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration as end:
            self._steps = None  # it refers to this reader
            return self._verdict(is_whole=cast(bool, end.value))
        return None

    def finish(self, *, truncated: bool) -> reader.Verdict:
        """Decide without more text; half a call counts only if all of it but its end is there."""
        self._is_final = True
        verdict = None if truncated else self.feed("")
        self._steps = None
        if truncated:
            is_whole = bool(self._calls) and not self._tool
            self._problem = self._tool = ""
            return self._verdict(is_whole=is_whole)
        return verdict or self._verdict(is_whole=False)

    def _verdict(self, *, is_whole: bool) -> reader.Verdict:
        text = self._read
        missing = self._marker_length - len(text)
        if missing > 0:  # not even the marker was used
            text, self._pending = text + self._pending[:missing], self._pending[missing:]
        text = text[self._marker_length :]
        if is_whole and self._calls:
            return reader.Verdict(text, self._calls, self._pending)
        problem = self._problem
        if self._tool and self._has_arguments and not problem:
            problem = f"The call of {self._tool} is not complete or not well formed."
        return reader.Verdict(text, (), self._pending, problem)

    def _read_calls(self) -> Steps:
        notation = self._notation
        if not (yield from self._literal(self._lead)):
            return False
        again = _first_part(notation.between + notation.open)
        while (yield from self._call()):
            self._tool = ""
            if notation.end.strip() and (yield from self._literal(notation.end)):
                return True
            if not again or not (yield from self._follows(again)):
                return True
            self._after_calls = len(self._parts)
            if not (yield from self._literal(f"{notation.between}\n{notation.open}")):
                break
        if notation.begin or not self._calls:
            return False
        self._pending = "".join(self._parts[self._after_calls :]) + self._pending
        del self._parts[self._after_calls :]
        return True

    def _call(self) -> Steps:
        """Read from a name to the end of its call."""
        notation = self._notation
        if not (yield from self._name()):
            return False
        middle = notation.middle.replace(NAME, self._tool)
        if not (yield from self._literal(middle)):
            return False
        tool = self._tool
        if notation.fields is None:
            if not (yield from self._json()):
                return False
            calls = self._catalog.from_arguments_text(tool, self._value)
            if not calls:
                self._problem = problem_of_arguments(tool, self._value, self._catalog)
        else:
            arguments: JsonObject = {}
            if not (yield from self._fields(notation.fields, arguments)):
                return False
            calls = (ParsedCall(tool, arguments),)
        closing = notation.close.replace(NAME, tool)
        is_closed = yield from self._literal(closing)
        if not calls or not (is_closed or (yield from self._is_over())):
            return False
        self._calls += calls
        return True

    def _is_over(self) -> Steps:
        """Whether a call may end here without its closing text."""
        while not self._is_final:
            hit = self._after_call.after_space(self._pending)
            if hit is None or hit.marker is not None:
                return hit is not None
            yield
        return not self._pending.strip() or self._after_call.after_space(self._pending) is not None

    def _name(self) -> Steps:
        """Read the name of a tool that is on offer."""
        end = self._notation.behind_name.strip() or "\n"
        while True:
            text = self._pending.lstrip()
            stops = [text.find(end) if end != "«" else -1, _find(_WORD_END, text)]
            stop = min((stop for stop in stops if stop >= 0), default=-1)
            if stop >= 0:
                break
            if self._is_final or not self._may_become_name(text):
                return False
            yield
        written = text[:stop]
        self._use(len(self._pending) - len(text) + stop)
        tool = self._catalog.known(written)
        if tool is None:
            is_name = self._notation.begin and _NAME.fullmatch(written)
            if is_name and (yield from self._literal(self._notation.middle)):
                self._problem = unknown_tool(written, self._catalog)
            return False
        self._tool = tool
        return True

    def _may_become_name(self, text: str) -> bool:
        """Whether to wait for the rest of a name; inside a section for any, to tell the model."""
        return bool(self._notation.begin and len(text) <= _MAX_SPACE) or (
            self._catalog.may_become_known(text)
        )

    def _json(self) -> Steps:
        """Read an object of JSON; nothing means none, if the end of the call follows."""
        scanner, scanned, start = repair.JsonScanner(), 0, len(self._parts)
        while not (space := self._pending.lstrip()):
            if self._is_final:
                return False
            yield
        if not space.startswith("{"):
            self._value = ""
            return bool(self._notation.close.strip())
        self._has_arguments = True
        while True:
            stop, end = scanner.scan_to_end(self._pending, scanned)
            self._use(end)
            scanned = 0
            if stop is repair.Stop.CLOSED:
                self._value = "".join(self._parts[start:])
                return True
            if self._is_final and stop is repair.Stop.MORE:
                self._cut_json(start)
                return True
            if stop is repair.Stop.TOO_DEEP:
                return False
            yield

    def _cut_json(self, start: int) -> None:
        """End an object that was not closed where the call ends."""
        text = "".join(self._parts[start:])
        close = _first_part(self._notation.close)
        end = text.find(close) if close else -1
        self._value = text[: end if end >= 0 else len(text)].rstrip()
        self._parts[start:] = [self._value]
        self._pending = text[len(self._value) :] + self._pending

    def _fields(self, fields: Fields, arguments: JsonObject) -> Steps:
        """Read arguments one by one into `arguments`."""
        schema = self._catalog.parameters[self._tool]
        known = properties(schema)
        opening = _first_part(fields.open + KEY)
        while (yield from self._is_field(opening)):
            self._has_arguments = True
            if not (yield from self._literal(fields.open)) or not (yield from self._key(fields)):
                return False
            key, self._word = self._word, ""
            if not (yield from self._literal(fields.middle.replace(KEY, key))):
                return False
            kind = self._word
            if not (yield from self._text(fields, key)):
                return False
            arguments[key] = self._read_value(fields, kind, known.get(key), schema)
            yield from self._literal(fields.between)
        return True

    def _is_field(self, opening: str) -> Steps:
        """Whether another argument follows, and not the end of the call."""
        closing = _first_part(self._notation.close)
        markers = MarkerSet.of(*filter(None, (opening, closing)))
        while True:
            hit = markers.after_space(self._pending)
            if hit is None:
                return not opening
            if hit.marker is not None:
                return hit.marker == opening
            if self._is_final:
                return False
            yield

    def _key(self, fields: Fields) -> Steps:
        """Read the key of an argument."""
        end = _first_part(fields.middle) or "\n"
        while (at := self._pending.find(end)) < 0:
            if self._is_final or len(self._pending) > _MAX_SPACE:
                return False
            yield
        self._word = self._pending[:at].strip().strip("\"'")
        self._use(at)
        return bool(self._word) and not re.search(r"[<>\"\s]", self._word)

    def _text(self, fields: Fields, key: str) -> Steps:
        """Read the text of a value, up to its closing text."""
        close = fields.close.replace(KEY, key)
        core, start = close.strip(), len(self._parts)
        if fields.cdata and (yield from self._follows("<![CDATA[")):
            core = f"]]>{core}"
        while True:
            at = self._pending.find(core)
            if at < 0:
                self._use(max(0, len(self._pending) - len(core) + 1))
                if self._is_final:
                    return False
                yield
                continue
            self._use(at)
            behind = self._pending[len(core) :]
            hit = self._after_value.after_space(behind)
            if hit is not None and hit.marker is None and not self._is_final:
                yield  # more text must show whether the value ends here
                continue
            is_end = hit is not None or (self._is_final and not behind.strip())
            if not is_end:
                self._use(len(core))
                continue
            text = "".join(self._parts[start:])
            is_wrapped = core.startswith("]]>")
            self._value = (
                text.lstrip().removeprefix("<![CDATA[")
                if is_wrapped
                else trimmed(text, fields, close)
            )
            self._use(len(core))
            return True

    def _read_value(self, fields: Fields, kind: str, schema: Any, root: JsonObject) -> Any:
        """The value that a text means."""
        text = self._value
        if fields.types:
            if kind == dict(fields.types)["string"]:
                return text
            try:
                return repair.read_json(text)
            except ValueError:
                return text
        if fields.language is Language.ELEMENTS:
            nested = nested_value(text, fields, schema, root)
            if nested is not None:
                return nested
        return from_text(unescape(text) if fields.escaped else text, schema, root)

    def _literal(self, text: str) -> Steps:
        """Read this text with its holes, and any whitespace where it begins or has some."""
        for part in _parts(text):
            hole = _HOLES.get(part)
            while True:
                start = len(self._pending) - len(self._pending.lstrip())
                rest = self._pending[start:]
                match = hole.match(rest) if hole else None
                if match and (match.end() < len(rest) or self._is_final):
                    self._word = match[0]
                    self._use(start + match.end())
                    break
                if hole is None and rest.startswith(part):
                    self._use(start + len(part))
                    break
                may_follow = not rest or match or (hole is None and part.startswith(rest))
                if self._is_final or not may_follow or start > _MAX_SPACE:
                    return False
                yield
        return True

    def _follows(self, part: str) -> Steps:
        """Whether this text comes next, behind whitespace."""
        while True:
            text = self._pending.lstrip()
            if text.startswith(part) or self._is_final or not part.startswith(text):
                return text.startswith(part)
            yield


def _find(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return match.start() if match else -1


def _parts(text: str) -> list[str]:
    """The words and the holes of a literal text, in order."""
    parts: list[str] = []
    pos = 0
    for hole in HOLES.finditer(text):
        parts += [*text[pos : hole.start()].split(), hole[0]]
        pos = hole.end()
    return [*parts, *text[pos:].split()]


def _first_part(text: str) -> str:
    """The literal text at the beginning of a text with holes, without whitespace."""
    return next(iter(HOLES.split(text)[0].split()), "")

"""The reader of calls: one machine that follows descriptions, whatever the family."""

import re
from collections.abc import Generator, Sequence
from contextlib import suppress
from html import unescape
from typing import cast

from msgspec import Struct

from shepherd.backends.output import notation as n
from shepherd.backends.output import values
from shepherd.backends.output.catalog import (
    ParsedCall,
    ToolCatalog,
    problem_of_arguments,
    properties,
    unknown_tool,
)
from shepherd.backends.output.known import between
from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.objects import ObjectReader
from shepherd.backends.output.scan import MAX_SPACE, CutError, Steps, first_part
from shepherd.messages import JsonObject

_NAME = re.compile(r"[\w.:-]+")
_WORD_END = re.compile(r"[\s<>(){}\[\]\"'=/]")
_NO_KEY = re.compile(r"[^\w:.-]")


class Verdict(Struct, frozen=True):
    """The result of a candidate: `calls`, or plain `text` if there are none.

    `text` is the text after the marker. `rest` belongs to neither and must be parsed again.
    `problem` says why an intended call is not valid.
    """

    text: str
    calls: tuple[ParsedCall, ...] = ()
    rest: str = ""
    problem: str = ""


_Calls = Generator[None, None, tuple[ParsedCall, ...]]
"""Steps that read calls; none if something else stands there."""


class CallReader(ObjectReader):
    """Reads calls as the first of some descriptions that fits, with any space between the parts.

    A value ends at its closing text if another argument or the call's end follows, so that markup
    may stand in it. Ends of calls may be missing where another call or the output's end follows.
    The verdict depends only on the text, not on its pieces.
    """

    def __init__(
        self, catalog: ToolCatalog, marker: str, notations: Sequence[n.Notation], fence: str = ""
    ) -> None:
        """`fence`: the block that it has opened is all that is read."""
        super().__init__(catalog, marker)
        self._marker_length = len(marker)
        self._tool = ""
        self._has_arguments = False
        """Whether the arguments of the last call have begun."""
        self._steps: Steps | None = (
            self._fenced(fence) if fence else self._first_of((*notations, *between(marker)))
        )

    def feed(self, text: str) -> Verdict | None:
        """Go on as far as the text allows; None while it can still be a call."""
        self._text += text
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration as end:
            self._steps = None  # it refers to this reader
            return self._verdict(is_call=cast(bool, end.value))
        return None

    def finish(self, *, truncated: bool) -> Verdict:
        """Decide without more text; in `truncated` output only complete calls count."""
        self._is_final, self._is_cut = True, truncated
        return self.feed("") or self._verdict(is_call=False)

    def _verdict(self, *, is_call: bool) -> Verdict:
        start, end = self._marker_length, max(self._marker_length, self._pos)
        if is_call:
            return Verdict(self._text[start:end], self._calls, self._text[end:])
        return Verdict(self._text[start:], (), "", "" if self._is_cut else self._problem)

    def _first_of(self, notations: Sequence[n.Notation]) -> Steps:
        """Read calls as the first notation that fits says."""
        for notation in notations:
            self._pos, self._tool, self._has_arguments = 0, "", False
            with suppress(CutError):  # only what was whole before counts
                yield from (
                    self._objects(notation) if notation.is_object else self._section(notation)
                )
            if self._calls:
                self._pos = self._behind_calls
                return True
            if self._tool and self._has_arguments:
                self._note(f"The call of {self._tool} is not complete or not well formed.")
        return False

    def _section(self, notation: n.Notation) -> Steps:
        """Read calls with what stands around all of them."""
        if notation.begin and (yield from self._literal(notation.begin)):
            yield from self._fence()
        while (yield from self._literal(notation.open)) and (yield from self._call(notation)):
            is_single = not (notation.begin and notation.many)
            if is_single or (notation.end.strip() and (yield from self._end(notation))):
                break  # without a section, what follows is found by its own marker
            has_between = yield from self._literal(notation.between)
            if has_between and notation.end.strip() and (yield from self._end(notation)):
                break
            if not has_between:
                break
        return True

    def _end(self, notation: n.Notation) -> Steps:
        """Read the end of all calls, with that of a fence before it."""
        start = self._pos
        if notation.begin:
            yield from self._literal("```")
        if (yield from self._literal(notation.end)):
            self._behind_calls = self._pos
            return True
        self._pos = start
        return False

    def _call(self, notation: n.Notation) -> Steps:
        """Read from a name to the end of its call."""
        self._tool, self._has_arguments = "", False
        if not (yield from self._name(notation)):
            return False
        tool, fields = self._tool, notation.fields
        if not (yield from self._literal(notation.middle.replace(n.NAME, tool))):
            return False
        self._has_arguments = _is_announced(notation) and bool(notation.middle)
        closing = notation.close.replace(n.NAME, tool)
        if fields is None:
            calls = yield from self._json_arguments(notation)
        elif fields.language is n.Language.ATTRIBUTES:
            calls = yield from self._attributes()
            closing = self._word
        else:
            calls = yield from self._fields(notation, fields)
        is_closed = calls and (yield from self._literal(closing))
        if not closing.strip() and fields and fields.close.strip():
            is_closed = False  # nothing has shown that the arguments are over
        if not calls or not (is_closed or (yield from self._is_over(notation))):
            return False
        self._tool = ""
        self._add(calls)
        return True

    def _is_over(self, notation: n.Notation) -> Steps:
        """Whether a call may end here without its closing text."""
        if notation.fields and not notation.fields.close.strip():
            return False
        ends = _ends(notation)
        return bool((yield from self._next_of(ends)) or not (yield from self._char()))

    def _name(self, notation: n.Notation) -> Steps:
        """Read the name of a tool that is on offer."""
        end = notation.behind_name.strip() or "\n"
        is_announced = _is_announced(notation)
        start = self._pos
        yield from self._char()
        quote = self._text[self._pos : self._pos + 1]
        quote = quote if quote in "\"'" and notation.open.endswith("=") else ""
        self._pos += len(quote)
        while True:
            stops = [self._text.find(end, self._pos) if end != "«" else -1]
            word_end = _WORD_END.search(self._text, self._pos)
            stops += [word_end.start()] if word_end else []
            stop = min((stop for stop in stops if stop >= 0), default=-1)
            if stop >= 0:
                break
            text = self._text[self._pos :]
            # Inside a section any name is waited for, to tell the model.
            may_be = is_announced and len(text) <= MAX_SPACE
            if not (may_be or self._catalog.may_become_known(text)):
                return False
            if not (yield from self._more()):
                return False
        written = self._text[self._pos : stop]
        self._pos = stop
        if quote:
            yield from self._literal(quote)
        tool = self._catalog.known(written)
        if tool is not None:
            self._tool = tool
            return True
        is_name = is_announced and _NAME.fullmatch(written)
        if is_name and (yield from self._literal(notation.middle)):
            self._note(unknown_tool(written, self._catalog))
        self._pos = start
        return False

    def _json_arguments(self, notation: n.Notation) -> _Calls:
        """Read an object of JSON; nothing means none, if the end of the call follows."""
        self._value, char = "", (yield from self._char())
        if char == "{":
            self._has_arguments = True
            if not (yield from self._json(first_part(notation.close))):
                return ()
        elif not (char and notation.close.strip()):
            return ()
        calls = self._catalog.from_arguments_text(self._tool, self._value)
        if not calls:
            self._note(problem_of_arguments(self._tool, self._value, self._catalog))
        return calls

    def _attributes(self) -> _Calls:
        """Read arguments as attributes of a tag, and those inside of its element.

        What must follow is the word that was read last.
        """
        written: dict[str, str] = {}
        while (yield from self._char()) not in ("/", ">"):
            start = self._pos
            while not (end := _NO_KEY.search(self._text, start)):
                if not (yield from self._more()):
                    return ()
            self._pos = end.start()
            is_apart = end.start() > start and self._text[start - 1].isspace()
            if not is_apart or not (yield from self._literal("=")):
                return ()
            behind = self._pos
            value = yield from self._quoted(lambda _: True)
            if self._pos == behind:
                return ()
            written[self._text[start : end.start()]] = unescape(value)
        call = self._catalog.from_texts(self._tool, written)
        self._word = ""
        if (yield from self._literal("/>")):
            return (call,)
        yield from self._literal(">")
        return (yield from self._element(call.arguments))

    def _element(self, arguments: JsonObject) -> _Calls:
        """Read what is inside of an element that is named after a tool."""
        closing = f"</{self._tool}>"
        if (yield from self._char()) == "{":
            yield from self._json(closing)
            self._word = closing
            return self._catalog.from_arguments_text(self._tool, self._value)
        element = n.Notation("<", "", closing)
        fields = n.Fields("<", ">", f"</{n.KEY}>")
        is_read = yield from self._each_field(element, fields, arguments)
        self._word, self._has_arguments = closing, False
        known = self._catalog.argument_names(self._tool)
        # Other names, or none where the tool has some, mean that it is an ordinary element.
        is_other = not arguments.keys() <= {*known} or (known and not arguments)
        return () if is_other or not is_read else (ParsedCall(self._tool, arguments),)

    def _fields(self, notation: n.Notation, fields: n.Fields) -> _Calls:
        """Read arguments one by one, or all between brackets."""
        arguments: JsonObject | None = {}
        if not fields.close.strip():
            arguments = yield from self._bracketed(notation, fields)
        elif not (yield from self._each_field(notation, fields, arguments)):
            return ()
        return () if arguments is None else (ParsedCall(self._tool, arguments),)

    def _bracketed(
        self, notation: n.Notation, fields: n.Fields
    ) -> Generator[None, None, JsonObject | None]:
        """Read arguments between brackets, as in Python or as Gemma writes them."""
        start = self._pos = self._pos - len(notation.middle.rstrip())
        if fields.language is n.Language.BARE:
            yield from self._find(first_part(notation.close + notation.end))
            end = self._text.rfind("}", start, self._pos + 1)
            self._pos, self._has_arguments = max(start, end), True
            return values.from_bare(self._text[start : end + 1])
        is_whole = yield from self._json("")
        self._has_arguments |= "=" in self._value
        self._pos -= 1
        return values.from_python(self._value) if is_whole else None

    def _each_field(self, notation: n.Notation, fields: n.Fields, arguments: JsonObject) -> Steps:
        """Read arguments one by one into `arguments`."""
        schema = self._catalog.parameters[self._tool]
        known = properties(schema)
        opening = first_part(fields.open + n.KEY)
        first = MarkerSet.of(*filter(None, (opening, first_part(notation.close))))
        while True:
            begun = yield from self._next_of(first)
            is_key = not opening and not begun and (yield from self._char())
            if not is_key and (not begun or begun != opening):
                return True
            self._has_arguments = True
            if not (yield from self._literal(fields.open)) or not (yield from self._key(fields)):
                return False
            key, self._word = self._word, ""
            if not (yield from self._literal(fields.middle.replace(n.KEY, key))):
                return False
            kind = self._word
            left = [name for name in known if name != key and name not in arguments]
            if not (yield from self._field_text(notation, fields, key, left)):
                return False
            own = known.get(key)
            arguments[key] = values.read(self._value, fields, kind, own, schema)
            yield from self._literal(fields.between)

    def _key(self, fields: n.Fields) -> Steps:
        """Read the key of an argument."""
        end = first_part(fields.middle) or "\n"
        while (at := self._text.find(end, self._pos)) < 0:
            if len(self._text) - self._pos > MAX_SPACE or not (yield from self._more()):
                return False
        self._word = self._text[self._pos : at].strip().strip("\"'")
        self._pos = at
        return bool(self._word) and not re.search(r"[<>\"\s]", self._word)

    def _field_text(
        self, notation: n.Notation, fields: n.Fields, key: str, left: Sequence[str]
    ) -> Steps:
        """Read the text of a value, up to its closing text.

        A model may forget that text before one of the arguments that are `left`, or at the end.
        """
        close = fields.close.replace(n.KEY, key)
        core, ends = close.strip(), _ends(notation, fields)
        is_wrapped = fields.cdata and (yield from self._literal("<![CDATA["))
        core = f"]]>{core}" if is_wrapped else core
        start = self._pos
        while (yield from self._find(core)):
            at = self._pos
            self._pos += len(core)
            if (yield from self._next_of(ends)) or not (yield from self._char()):
                end, behind = at, at + len(core)
                break
            self._pos = at + len(core)
        else:
            closing = first_part(notation.close)
            end = behind = self._text.find(closing, start) if closing else -1
            if end < 0:
                return False
        opening, middle = fields.open.strip(), first_part(fields.middle)
        if opening.endswith(("=", '"')):
            others = (f"\n{opening}{name}{middle}" for name in left)
            begun = [at for other in others if (at := self._text.find(other, start, end)) >= 0]
            end, behind = (min(begun) + 1,) * 2 if begun else (end, behind)
        text = self._text[start:end]
        self._value = text if is_wrapped else values.trimmed(text, fields, close)
        self._pos = behind
        return True


def _is_announced(notation: n.Notation) -> bool:
    """Whether what stands before a name can't be anything but the beginning of a call."""
    return bool(notation.begin) and len(notation.open) > 1


def _ends(notation: n.Notation, fields: n.Fields | None = None) -> MarkerSet:
    """What may follow a call, or one of its arguments."""
    texts = [notation.close, notation.end, notation.between + notation.open, notation.begin]
    texts += [fields.open + n.KEY] if fields else []
    return MarkerSet.of(*filter(None, map(first_part, texts)))

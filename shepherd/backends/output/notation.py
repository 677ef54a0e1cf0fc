"""How a model writes calls, as plain data: from it calls are read, and grammars for them made."""

import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

NAME = "«name»"
KEY = "«key»"
TYPE = "«type»"
ID = "«id»"
FROM_0 = "«0»"
FROM_1 = "«1»"
"""The holes in the literal parts: the tool's name, the argument's key, a word for the type of its
value, the call's id, and its number, counted from 0 or from 1."""

HOLES = re.compile("«(?:name|key|type|id|0|1)»")
ID_PATTERN = r"[\w.-]{1,64}"
NUMBER_PATTERN = r"[0-9]{1,3}"

_OBJECT = re.compile(r"[{:]\s*\"\Z")
_TAG = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]|```")
_MARKER = re.compile(r"<\|open\|>\w+<\|sep\|>|[^\s«]*?(?:<[^<>\s«]+>|\[[A-Z_]+\])")


class Language(StrEnum):
    """How values are written in which others may nest."""

    JSON = "json"
    PYTHON = "python"
    BARE = "bare"  # Gemma's: keys without quotes, strings in quotes of its own
    ELEMENTS = "elements"  # an element for each key and each item
    ATTRIBUTES = "attributes"  # of one tag, or elements in it


class Fields(Struct, frozen=True):
    """Arguments one by one: `open` KEY `middle` VALUE `close`, with `between` between two.

    `quote` stands around a string; "" if it is written as it is. With `cdata`, such a string with
    markup in it is wrapped in CDATA, and with `escaped` markup in it is written as entities.
    `types` are the words of types in the hole TYPE, by their names in JSON schemas. `pythons` are
    the types that are written as in Python, `item` is the key of an item of a list of ELEMENTS.
    """

    open: str
    middle: str
    close: str
    between: str = ""
    quote: str = ""
    cdata: bool = False
    escaped: bool = False
    types: tuple[tuple[str, str], ...] = ()
    pythons: tuple[str, ...] = ()
    language: Language = Language.JSON
    item: str = "item"


class Notation(Struct, frozen=True):
    """The text around calls: `begin`, then calls with `between` between two, then `end`.

    A call is `open` NAME `middle` ARGUMENTS `close`. The arguments are an object of JSON, with
    `comma` and `colon` as separators ("" if it is laid out on several lines), unless they are
    `fields`. `many`: an answer may have several calls. `ordered`: arguments are in the order of the
    alphabet. `prompted` is the beginning of `open` that the prompt has written before the first
    call.
    """

    open: str
    middle: str
    close: str
    begin: str = ""
    between: str = ""
    end: str = ""
    many: bool = True
    ordered: bool = False
    fields: Fields | None = None
    comma: str = ", "
    colon: str = ": "
    prompted: str = ""

    @property
    def lead(self) -> str:
        """All that is written before the first name."""
        return self.begin + self.open

    @property
    def marker(self) -> str:
        """Such as `<tool_call>` or `[TOOL_CALLS]`; "" if a call begins with other text."""
        match = _MARKER.match(self.lead)
        return match.group() if match else ""

    @property
    def is_object(self) -> bool:
        """Whether a call is an object of JSON, with the name in it."""
        return self.fields is None and _OBJECT.search(self.open) is not None

    @property
    def closing(self) -> str:
        """The tag or the fence that ends calls, such as `</tool_call>`; "" if none does."""
        tags = _TAG.findall(self.close + self.end)
        return tags[-1] if tags else ""

    def markers(self, names: Iterable[str]) -> list[str]:
        """The texts that begin calls of tools with these names; none if they are no markers."""
        if self.marker:
            alone = _MARKER.match(self.open.strip())  # a call without what is around all calls
            return [self.marker, *([alone[0]] if alone and self.begin else [])]
        word, _, others = self.lead.partition("\n")
        if others and self.is_object and len(word) > 1:
            return [word]
        behind = HOLES.split(self.middle)[0].split() or [""]
        if not (self.lead.startswith(("<", ">")) or _TAG.search(behind[0])):
            return []
        return [f"{self.lead.strip()}{name}{behind[0]}" for name in names]

    @property
    def behind_name(self) -> str:
        """The character that ends a name."""
        fields = self.fields.open if self.fields else ""
        return (self.middle + fields + self.close)[:1]

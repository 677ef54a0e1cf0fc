"""How a model writes calls, as plain data: from it calls are read, and grammars for them made."""

import re
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

_MARKER = re.compile(r"[^\s«]*?(?:<[^<>\s«]+>|\[[A-Z_]+\])")


class Language(StrEnum):
    """How values are written in which others may nest."""

    JSON = "json"
    PYTHON = "python"
    BARE = "bare"  # Gemma's: keys without quotes, strings in quotes of its own
    ELEMENTS = "elements"  # an element for each key and each item


class Fields(Struct, frozen=True):
    """Arguments one by one: `open` KEY `middle` VALUE `close`, with `between` between two.

    `quote` stands around a string; "" if it is written as it is. With `cdata`, such a string with
    markup in it is wrapped in CDATA, and with `escaped` markup in it is written as entities.
    `types` are the words of types in the hole TYPE, by their names in JSON schemas. `pythons` are
    the types that are written as in Python, `item` is the key of an item of a list of ELEMENTS.
    `spaces`: JSON is laid out on several lines.
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
    spaces: bool = False


class Notation(Struct, frozen=True):
    """The text around calls: `begin`, then calls with `between` between two, then `end`.

    A call is `open` NAME `middle` ARGUMENTS `close`. The arguments are an object of JSON, with
    `comma` and `colon` as separators, unless they are `fields`. `many`: an answer may have several
    calls.
    """

    open: str
    middle: str
    close: str
    begin: str = ""
    between: str = ""
    end: str = ""
    many: bool = True
    fields: Fields | None = None
    comma: str = ", "
    colon: str = ": "

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
    def behind_name(self) -> str:
        """The character that ends a name."""
        fields = self.fields.open if self.fields else ""
        return (self.middle + fields + self.close)[:1]

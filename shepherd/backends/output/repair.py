"""JSON as models write it: a strict parser, one that repairs the usual mistakes, and a scanner."""

import json
import math
import re
from typing import Any, NoReturn, cast

from shepherd.json_text import too_deep

MAX_DEPTH = 64

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s,:{}\[\]\"'()]+")
_LITERALS: dict[str, Any] = {
    "true": True, "True": True, "false": False, "False": False,
    "null": None, "None": None,
}  # fmt: skip
_NUMBER = re.compile(r"-?\d{1,400}(\.\d+)?([eE][+-]?\d{1,4})?")
_CLOSES_KEY = re.compile(r"\s*:")
_CLOSES_VALUE = re.compile(r"\s*(?:\Z|[}\]]|,\s*(?:\Z|[\"'{}\[\]]|[\w.+-]+\s*(?:\Z|[:,}\]])))")
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_STRING_STEP = {q: re.compile(rf"[^{q}\\]*") for q in "\"'"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\"}
_SURROGATES = re.compile("[\ud800-\udfff]")


def loads(text: str) -> Any:
    """Parse strict JSON, except that strings may contain raw control characters.

    Raises ValueError, also for NaN, for numbers too large for a float and for values that are
    nested too deeply.
    """
    try:
        value = _DECODER.decode(text)
        if too_deep(text, value, MAX_DEPTH):
            raise ValueError("nested too deep")
        may_have_surrogates = "\\u" in text or not _is_unicode(text)
        return _join_surrogates(value) if may_have_surrogates else value
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_json(text: str) -> Any:
    """Parse strict JSON, or else JSON with the usual mistakes; raises ValueError."""
    try:
        return loads(text)
    except ValueError:
        return repair_json(text)


def repair_json(text: str, *, close_string: bool = False) -> Any:
    """Parse JSON that may have the usual mistakes of models.

    These are trailing or missing commas, missing or extra closing brackets, single quotes, bare
    keys, Python literals and unescaped quotes. A string without an end is an error unless
    `close_string` is true: then it ends with the text, as in a call that was cut off. Raises
    ValueError.
    """
    parser = _Repairer(text, close_string=close_string)
    value = parser.value(0)
    if text[parser.pos :].strip(" \t\r\n}];,"):  # closing brackets may be too many
        raise ValueError("text after the value")
    return _join_surrogates(value)


def _refuse(constant: str) -> NoReturn:
    """Refuse `NaN` and `Infinity`, which Python's decoder takes."""
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    """The number, unless a float can't hold it."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


_DECODER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=_refuse)


def _is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogate; encoding is faster than a search for one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _join_surrogates(value: Any) -> Any:
    """The value with surrogate pairs joined; a lone surrogate becomes U+FFFD."""
    if isinstance(value, str):
        if not _SURROGATES.search(value):
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_join_surrogates(v) for v in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {_join_surrogates(k): _join_surrogates(v) for k, v in items}
    return value


class _Repairer:
    """Reads one value from `text`; `pos` is the place of the next character."""

    def __init__(self, text: str, *, close_string: bool) -> None:
        self.text = text
        self.pos = 0
        self._close_string = close_string

    def value(self, depth: int) -> Any:
        """Read a value; raises ValueError."""
        char = self._peek()
        if depth >= MAX_DEPTH and char and char in "{[":
            raise ValueError("nested too deep")
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char and char in "\"'":  # at the end it is "", which any text contains
            return self._string(_CLOSES_VALUE)
        return self._literal()

    def _peek(self) -> str:
        """The next character behind space, which stays unread; "" at the end."""
        space = _SPACE.match(self.text, self.pos)
        self.pos = space.end() if space else self.pos
        return self.text[self.pos : self.pos + 1]

    def _ends(self, closer: str) -> bool:
        """Skip commas; whether the object or list ends here, also by another one's bracket."""
        while self._peek() == ",":
            self.pos += 1
        char = self._peek()
        if char == closer:
            self.pos += 1
        return char in ("", "}", "]")

    def _object(self, depth: int) -> dict[str, Any]:
        """An object with or without its commas and its last bracket."""
        self.pos += 1
        result: dict[str, Any] = {}
        while not self._ends("}"):
            key = self._string(_CLOSES_KEY) if self._peek() in "\"'" else self._word()
            if self._peek() != ":":
                raise ValueError("a key without a value")
            self.pos += 1
            result[key] = self.value(depth + 1)
        return result

    def _array(self, depth: int) -> list[Any]:
        """A list with or without its commas and its last bracket."""
        self.pos += 1
        result: list[Any] = []
        while not self._ends("]"):
            result.append(self.value(depth + 1))
        return result

    def _word(self) -> str:
        """Read a word without quotes; raises ValueError without one."""
        word = _WORD.match(self.text, self.pos)
        if word is None:
            raise ValueError("neither a value nor a key")
        self.pos = word.end()
        return word.group()

    def _literal(self) -> Any:
        """A number, or a word of JSON or Python; raises ValueError for other words."""
        word = self._word()
        if word in _LITERALS:
            return _LITERALS[word]
        if not _NUMBER.fullmatch(word):
            raise ValueError(f"not a value: {word[:20]}")
        return loads(word)

    def _string(self, closes: re.Pattern[str]) -> str:
        """A string up to the quote behind which the text goes on as JSON does."""
        quote, self.pos = self.text[self.pos], self.pos + 1
        parts: list[str] = []
        while self.pos < len(self.text):
            plain = _STRING_STEP[quote].match(self.text, self.pos)
            parts.append(plain.group() if plain else "")
            self.pos = plain.end() if plain else self.pos
            char = self.text[self.pos : self.pos + 1]  # a quote, a backslash, or "" at the end
            if self._close_string and _CUT_ESCAPE.match(self.text, self.pos):
                self.pos = len(self.text)
            elif char == "\\":
                parts.append(self._escape())
            elif char and closes.match(self.text, self.pos + 1):
                self.pos += 1
                return "".join(parts)
            else:  # the model forgot to escape this quote
                parts.append(char)
                self.pos += 1
        if not self._close_string:
            raise ValueError("a string without an end")
        return "".join(parts)

    def _escape(self) -> str:
        """The character of an escape; an unknown escape stays as it is."""
        char = self.text[self.pos + 1 : self.pos + 2]
        digits = self.text[self.pos + 2 : self.pos + 6]
        if char == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            self.pos += 6
            return chr(int(digits, 16))
        self.pos += 2
        return char if char in "\"'" else _ESCAPES.get(char, "\\" + char)

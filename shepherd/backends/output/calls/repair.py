"""JSON as models write it: strict first, then with the usual mistakes mended."""

import json
import re
from typing import Any, NoReturn, cast

MAX_DEPTH = 64

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s,:{}\[\]\"'()]+")
_LITERALS: dict[str, Any] = {
    "true": True, "True": True, "false": False, "False": False,
    "null": None, "None": None,
}  # fmt: skip
_NUMBER = re.compile(r"-?\d{1,400}(\.\d+)?([eE][+-]?\d{1,4})?")
_CLOSES_KEY = re.compile(r"\s*:")
_CLOSES_VALUE = re.compile(r"\s*(?:\Z|[}\]]|,\s*(?:\Z|[\"'{}\[\]]|[\w.+-]+\s*[:,}\]]))")
_STRING_STEP = {q: re.compile(rf"[^{q}\\]*") for q in "\"'"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\"}
_SURROGATES = re.compile("[\ud800-\udfff]")


def loads(text: str) -> Any:
    """Parse JSON in which only raw control characters in strings are forgiven.

    Raises ValueError; also for NaN, and for what is nested too deep to be an argument.
    """
    try:
        value = _FORGIVING.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return _clean(value) if "\\u" in text or not _is_unicode(text) else value


def loads_lenient(text: str) -> Any:
    """Parse JSON with trailing or missing commas, missing closing brackets, single quotes, bare
    keys, Python literals, stray closing brackets behind the end, or quotes left unescaped.

    A string that never ends is not mended: nobody can tell what was meant. Raises ValueError.
    """
    parser = _Lenient(text)
    value = parser.value(0)
    if text[parser.pos :].strip(" \t\r\n}];,"):
        raise ValueError("text after the value")
    return _clean(value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_FORGIVING = json.JSONDecoder(strict=False, parse_constant=_refuse)


def _is_unicode(text: str) -> bool:
    """Whether there is no half of a character in it; faster than a search for one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        halves = _SURROGATES.search(value)
        return _joined(value) if halves else value
    if isinstance(value, list):
        return [_clean(v) for v in cast(list[Any], value)]
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in cast(dict[str, Any], value).items()}
    return value


def _joined(text: str) -> str:
    """The text with halves of characters joined, or replaced where one is missing."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Lenient:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deep")
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char and char in "\"'":
            return self._string(_CLOSES_VALUE)
        return self._literal()

    def _peek(self) -> str:
        found = _SPACE.match(self.text, self.pos)
        self.pos = found.end() if found else self.pos
        return self.text[self.pos : self.pos + 1]

    def _ends(self, closer: str) -> bool:
        while self._peek() == ",":
            self.pos += 1
        char = self._peek()
        self.pos += char == closer
        return char in ("", "}", "]")

    def _object(self, depth: int) -> dict[str, Any]:
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
        self.pos += 1
        result: list[Any] = []
        while not self._ends("]"):
            result.append(self.value(depth + 1))
        return result

    def _word(self) -> str:
        found = _WORD.match(self.text, self.pos)
        if found is None:
            raise ValueError("neither a value nor a key")
        self.pos = found.end()
        return found.group()

    def _literal(self) -> Any:
        word = self._word()
        if word in _LITERALS:
            return _LITERALS[word]
        if not _NUMBER.fullmatch(word):
            raise ValueError(f"not a value: {word[:20]}")
        return loads(word)

    def _string(self, closes: re.Pattern[str]) -> str:
        quote, self.pos = self.text[self.pos], self.pos + 1
        parts: list[str] = []
        while self.pos < len(self.text):
            found = _STRING_STEP[quote].match(self.text, self.pos)
            parts.append(found.group() if found else "")
            self.pos = found.end() if found else self.pos
            char = self.text[self.pos : self.pos + 1]
            if char == "\\":
                parts.append(self._escape())
            elif char and closes.match(self.text, self.pos + 1):
                self.pos += 1
                return "".join(parts)
            else:
                parts.append(char)
                self.pos += 1
        raise ValueError("a string without an end")

    def _escape(self) -> str:
        char = self.text[self.pos + 1 : self.pos + 2]
        digits = self.text[self.pos + 2 : self.pos + 6]
        if char == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            self.pos += 6
            return chr(int(digits, 16))
        self.pos += 2
        return char if char in "\"'" else _ESCAPES.get(char, "\\" + char)

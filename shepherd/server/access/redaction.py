"""Arguments of tools in a short form without secrets, for the audit."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import cast

from shepherd.messages import JsonObject
from shepherd.tools.permissions.content import holds_private_key

MAX_TEXT = 200
"""Characters that are kept of a text."""

MAX_ITEMS = 20
MAX_DEPTH = 4
MAX_VALUES = 60
MAX_NUMBER = 10**20
CUT = "…"
MAX_ARGUMENTS = 2000
"""Characters of all arguments together, in JSON."""

HIDDEN = "[hidden]"
_READ = 4 * MAX_TEXT
"""Characters in which secrets are searched for."""

_NAME = r"(?:passw|passphrase|secret|token|credential|api[_-]?key|private[_-]?key)[\w.-]*"
_SECRET_NAME = re.compile(rf"{_NAME}|authorization|cookie|^pwd$|^pass$", re.IGNORECASE)
_VALUE = r"""(?:"[^"]*"?|'[^']*'?|[^\s"',;&]+)"""
_PATTERNS = (
    re.compile(
        rf"(?i)(?P<keep>authorization[\"']?\s*[:=]\s*)(?:(?:bearer|basic|digest|token)\s+)?{_VALUE}"
    ),
    re.compile(r"(?i)(?P<keep>\b(?:set-)?cookie[\"']?\s*:\s*)[^\r\n\"']+"),
    re.compile(r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[A-Za-z0-9+/=._~-]{8,}"),
    re.compile(rf"(?i)(?P<keep>(?:{_NAME}|\bpwd)[\"']?\s*(?:[:=]|\s)\s*){_VALUE}"),
    re.compile(r"(?P<keep>://[^\s/:@]*:)[^\s/@]+(?=@)"),
    re.compile(r"(?P<keep>\s(?:-u|--user)[ =]?[^\s:]*:)\S+"),
    re.compile(
        r"(?P<keep>)(?:\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}|\bgh[pousr]_[A-Za-z0-9]{16,}"
        r"|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bxox[a-z]-[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
        r"|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}[\w.-]*)"
    ),
)


def short_arguments(arguments: JsonObject, secrets: Mapping[str, str]) -> object:
    """The arguments without secrets, with texts and lists that are too long cut.

    `secrets` maps values that must not appear to the names that replace them.
    """
    short = _Shortener(secrets).short(arguments)
    text = json.dumps(short, ensure_ascii=False, default=str)
    return short if len(text) <= MAX_ARGUMENTS else f"{text[:MAX_ARGUMENTS]}{CUT}"


def without_secrets(text: str, secrets: Mapping[str, str]) -> str:
    """A text without what looks like a key or a password."""
    for secret, name in secrets.items():
        text = text.replace(secret, f"[{name}]")
    if holds_private_key(text):
        return HIDDEN
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<keep>{HIDDEN}", text)
    return text


@dataclass(slots=True)
class _Shortener:
    """Shortens values, of which only the first MAX_VALUES are kept."""

    secrets: Mapping[str, str]
    left: int = MAX_VALUES

    def short(self, value: object, depth: int = MAX_DEPTH) -> object:
        """The value without secrets and with a limited size."""
        self.left -= 1
        if self.left < 0 or (isinstance(value, dict | list) and not depth):
            return CUT
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._object(cast(Mapping[object, object], value), depth)
        if isinstance(value, list):
            entries = cast(list[object], value)
            items = [self.short(entry, depth - 1) for entry in entries[:MAX_ITEMS]]
            return [*items, CUT] if len(entries) > MAX_ITEMS else items
        is_long = isinstance(value, int) and abs(value) > MAX_NUMBER
        return CUT if is_long else value

    def _object(self, fields: Mapping[object, object], depth: int) -> dict[str, object]:
        redacted: dict[str, object] = {}
        for name, value in islice(fields.items(), MAX_ITEMS):
            hidden = _SECRET_NAME.search(str(name)[:MAX_TEXT]) is not None
            redacted[self._text(str(name))] = HIDDEN if hidden else self.short(value, depth - 1)
        return redacted | {CUT: CUT} if len(fields) > MAX_ITEMS else redacted

    def _text(self, text: str) -> str:
        clean = without_secrets(text[:_READ], self.secrets)
        return clean if len(text) <= MAX_TEXT else f"{clean[:MAX_TEXT]}{CUT}"

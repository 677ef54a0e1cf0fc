"""What a reader should know about a text that looks like another one."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

from shepherd.tools.invisible import count_hidden, count_right_to_left
from shepherd.tools.text import counted

MAX_NAMED = 5
"""Hosts, and words, that are named one by one."""

_HOST = re.compile(r"//(?:[^\s/?#@]*@)?([\w.-]+)")
_WORD = re.compile(r"\w*[^\W\x00-\x7f]\w*")
_ALIKE = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC")
"""Alphabets with letters that look the same."""


def warnings(texts: Sequence[str]) -> Iterator[str]:
    """A line for each kind of thing that the eye would miss in texts that say the same."""
    text = "\n".join(texts)
    hidden = max(map(count_hidden, texts))
    if hidden:
        yield f"! {counted(hidden, 'hidden character')}: each is shown as <U+its number>"
    turned = max(map(count_right_to_left, texts))
    if turned:
        yield f"! {counted(turned, 'right-to-left letter')}: the order on the screen may be another"
    if not text.isascii():
        yield from _named("host", _hosts(text))
        yield from _named("word", _mixed_words(text))


def _named(kind: str, found: list[str]) -> Iterator[str]:
    for line in found[:MAX_NAMED]:
        yield f"! {line}"
    if len(found) > MAX_NAMED:
        yield f"! {counted(len(found) - MAX_NAMED, f'more {kind}')} like that"


def _hosts(text: str) -> list[str]:
    hosts = dict.fromkeys(host for host in _HOST.findall(text) if not host.isascii())
    return [f"the host {host} is {_punycode(host)}" for host in hosts]


def _punycode(host: str) -> str:
    labels = unicodedata.normalize("NFKC", host).lower().split(".")
    return ".".join(
        label if label.isascii() else "xn--" + label.encode("punycode").decode() for label in labels
    )


def _mixed_words(text: str) -> list[str]:
    words = dict.fromkeys(_WORD.findall(text))
    mixed: list[str] = []
    for word in words:
        alphabets = sorted({a for c in word if (a := _alphabet(c))})
        if len(alphabets) > 1:
            mixed.append(f"{word[:40]} mixes alphabets: {', '.join(alphabets)}")
    return mixed


@cache
def _alphabet(character: str) -> str:
    name = unicodedata.name(character, "")
    return next((a.capitalize() for a in _ALIKE if name.startswith(a)), "")

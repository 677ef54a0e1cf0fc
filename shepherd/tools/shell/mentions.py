"""Finds the files that a command's words may name, for the rules that deny."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from shepherd.tools.base import Access, AccessKind, Claim
from shepherd.tools.shell.globs import expand_glob
from shepherd.tools.shell.places import Places
from shepherd.tools.shell.syntax import Word

_MAX_CLUSTER = 40
_FRAGMENTS = re.compile(r"[=:,@]+")
_CODE_FRAGMENTS = re.compile(r"[\s'\"(){}\[\]<>;|&=:,@`$+]+")
_SHORT_OPTION = re.compile(r"-[A-Za-z0-9]+")


def mentioned_files(word: Word, places: Places, *, code: bool, writes: bool) -> Iterator[Access]:
    """The files that a word may name; `code` if it may hold a program's text.

    They are also written if the program `writes` its arguments. Raises OverflowError if a
    wildcard matches too many files.
    """
    fragments = [word.text, *_fragments(word.text, code=code)]
    for place in places.all:
        names = [*fragments, *(expand_glob(word, place) if word.glob else ())]
        for access in _mentions(names, places, place):
            yield access
            if writes:
                yield replace(access, kind=AccessKind.WRITE)


def rough_mentions(text: str, place: Path) -> Iterator[Access]:
    """The files that a text which can't be parsed may name."""
    return _mentions(dict.fromkeys(_CODE_FRAGMENTS.split(text)), Places(place), place)


def _mentions(names: Iterable[str], places: Places, place: Path) -> Iterator[Access]:
    for name in names:
        path = places.file(name, place)
        if path is not None:
            yield Access(AccessKind.READ, str(path), Claim.MENTION)


def _fragments(text: str, *, code: bool) -> list[str]:
    if code:
        return _CODE_FRAGMENTS.split(text)
    if " " in text or "\n" in text:
        return []
    parts = _FRAGMENTS.split(text)
    return [*_attached_values(text), *(parts if len(parts) > 1 else [])]


def _attached_values(text: str) -> list[str]:
    """The possible values in `-sT.env`: the text after each letter of the cluster."""
    match = _SHORT_OPTION.match(text)
    end = min(match.end(), _MAX_CLUSTER) if match else 0
    return [text[start:] for start in range(2, end + 1) if start < len(text)]

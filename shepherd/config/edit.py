"""Changing a settings file while its comments and order stay."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from shepherd.config.fields import aliases, all_fields, unknown_key
from shepherd.config.files import exclusive, write_private
from shepherd.config.layers import parse_file_layer
from shepherd.config.settings import LayerName
from shepherd.errors import ConfigError

Document: TypeAlias = dict[str, Any]
"""A TOML document or table of tomlkit, which has no useful types of its own."""


def set_value(path: Path, key: str, value: object) -> None:
    """Set `section.key` in the file at `path`, which is created when missing.

    Raises ConfigError, and writes nothing, when the file would not be valid.
    """
    section, names = _place(key)

    def change(document: Document) -> None:
        table = _table(document, section)
        table[next((n for n in names if n in table), names[0])] = value

    _edit(path, change)


def unset_value(path: Path, key: str) -> bool:
    """Remove `section.key` from the file at `path`; False when it was not there."""
    section, names = _place(key)
    removed: list[object] = []

    def change(document: Document) -> None:
        table = document.get(section, {})
        removed.extend(table.pop(name) for name in names if name in table)

    _edit(path, change)
    return bool(removed)


def _place(key: str) -> tuple[str, list[str]]:
    """The section of a setting and all its names in a file, the first one first."""
    field = all_fields().get(key)
    if field is None:
        raise ConfigError(unknown_key(key))
    section, _, name = key.partition(".")
    return section, [name, *aliases(field)]


def _edit(path: Path, change: Callable[[Document], None]) -> None:
    with exclusive(path):
        try:
            parsed = tomlkit.parse(path.read_text(encoding="utf-8") if path.exists() else "")
        except (OSError, UnicodeDecodeError, TOMLKitError) as error:
            raise ConfigError(f"{path}: can't be changed: {error}") from error
        change(cast(Document, parsed))
        text = tomlkit.dumps(parsed)
        parse_file_layer(LayerName.USER, path, text)
        write_private(path, text)


def _table(document: Document, section: str) -> Document:
    if section not in document:
        document[section] = tomlkit.table()
    return document[section]

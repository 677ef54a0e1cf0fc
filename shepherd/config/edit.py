"""Changes a settings file, and keeps its comments and order."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from shepherd.config import files, layers, settings
from shepherd.errors import ConfigError

Document: TypeAlias = dict[str, Any]
"""A TOML document or table of tomlkit, whose own types are not useful."""


def set_value(path: Path, key: str, value: object) -> str:
    """Set `section.key` in the file at `path`, which is created if it is missing.

    Returns the other errors in the file, "" if there are none. Raises ConfigError, and writes
    nothing, if the value is wrong or the file is not TOML.
    """
    layers.flag_layer({key: value})  # raises ConfigError for a wrong value
    section, names = _section_and_names(key)

    def change(document: Document) -> None:
        table = _table(document, section)
        used = next((name for name in names if name in table), names[0])
        table[used] = value
        for name in set(names) - {used}:  # two names of one setting would be an error
            table.pop(name, None)

    return _edit(path, change)


def unset_value(path: Path, key: str) -> tuple[bool, str]:
    """Remove `section.key`, which may be an unknown key, from the file at `path`.

    Returns whether it was there, and the other errors in the file.
    """
    section, names = _section_and_names(key)
    removed: list[object] = []

    def change(document: Document) -> None:
        table = document.get(section)
        if isinstance(table, dict):
            inner = cast(Document, table)
            removed.extend(inner.pop(name) for name in names if name in inner)

    problems = _edit(path, change)
    return bool(removed), problems


def _section_and_names(key: str) -> tuple[str, list[str]]:
    """The section of a setting and all its names in a file, the main name first."""
    section, _, name = key.partition(".")
    field = settings.find_field(key)
    return section, [name, *(settings.aliases(field) if field else ())]


def change_document(path: Path, change: Callable[[Document], object]) -> str:
    """Change the TOML file at `path`, which is created if it is missing, and return its new text.

    Raises ConfigError, and writes nothing, if the file is not TOML.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: can't be changed: it is not a regular file")
    with files.exclusive(path):
        parsed = _parse(path)
        before = tomlkit.dumps(parsed)
        change(cast(Document, parsed))
        text = tomlkit.dumps(parsed)
        if text != before:
            files.write_private(path, text)
    return text


def save_table(path: Path, name: str, values: Mapping[str, object]) -> None:
    """Let the table `name` of the file at `path` have exactly `values`; comments stay.

    Raises ConfigError, and writes nothing, if the file is not TOML.
    """

    def change(document: Document) -> None:
        table = document.setdefault(name, {})
        for key in [key for key in table if key not in values]:
            del table[key]
        for key, value in values.items():
            if table.get(key) != value:  # an equal value keeps its form and its comment
                table[key] = value

    change_document(path, change)


def remove_table(path: Path, name: str) -> None:
    """Remove the table `name` from the file at `path`, if it is there; raises ConfigError."""
    change_document(path, lambda document: document.pop(name, None))


def _edit(path: Path, change: Callable[[Document], None]) -> str:
    """Change a settings file and return the errors that it has afterwards."""
    text = change_document(path, change)
    try:
        layers.parse_file_layer(settings.LayerName.USER, path, text)
    except ConfigError as error:
        return str(error)
    return ""


def _parse(path: Path) -> tomlkit.TOMLDocument:
    """The document of a file, with its comments; an empty one if there is no file."""
    try:
        return tomlkit.parse(files.read_settings(path))
    except TOMLKitError as error:
        raise ConfigError(f"{path}: can't be changed: {error}") from error


def _table(document: Document, section: str) -> Document:
    """The table of a section, which is made if it is missing."""
    if section not in document:
        document[section] = tomlkit.table()
    table = document[section]
    if not isinstance(table, dict):
        raise ConfigError(f"{section} is a section, but a value in the file; remove it by hand")
    return cast(Document, table)

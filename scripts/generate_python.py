"""Writes docs/reference/python.md from the public names of `import shepherd`."""

import inspect
import re
from collections.abc import Iterator
from enum import EnumType
from types import ModuleType
from typing import Any, get_origin

from msgspec import Struct

import shepherd
from shepherd.sdk.opening import Options

PAGE = "python.md"

_HEAD = """# Names of the Python package

Generated from `shepherd/__init__.py`; do not edit. How to use them: [Shepherd from
Python](../python.md).
"""


def render() -> str:
    """The page as Markdown."""
    parts = [_HEAD, "## Options of `open` and `ask`\n", _text(Options), ""]
    for name in shepherd.__all__:
        if not name.startswith("_"):
            parts += _entry(name, getattr(shepherd, name))
    return "\n".join(parts)


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"## `{name}`\n"
    if get_origin(value) is not None and not inspect.isclass(value):
        yield f"A type: `{_type_text(value)}`\n"
        return
    package: str = value.__module__.partition(".")[0]
    yield f"{_text(value) if package == 'shepherd' else f'That of the package `{package}`.'}\n"
    rows = [*_members(value)]
    if rows:
        yield from [*rows, ""]


def _members(value: Any) -> Iterator[str]:
    """The fields of a dataclass, the values of an enum, the public methods of a class."""
    if isinstance(value, EnumType):
        yield from (f"- `{name}`" for name in value.__members__)
        return
    if not inspect.isclass(value) or issubclass(value, Exception):
        return
    if issubclass(value, Struct):
        yield from (f"- `{name}`" for name in value.__struct_fields__)
    for name, member in vars(value).items():
        if name.startswith("_") or isinstance(member, ModuleType):
            continue
        if isinstance(member, property) or inspect.isfunction(member):
            yield f"- `{name}{'()' if inspect.isfunction(member) else ''}`: {_first(member)}"


def _type_text(value: Any) -> str:
    return re.sub(r"(?:[a-z_]+\.)+(?=[A-Z])", "", str(value))


def _text(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split())


def _first(value: Any) -> str:
    return _text(value).partition("; ")[0].rstrip(".") + "."

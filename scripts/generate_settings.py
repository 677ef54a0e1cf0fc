"""Writes docs/reference/settings.md and config/config.toml from the models of the settings."""

import textwrap
from collections.abc import Iterator
from typing import cast

from msgspec.structs import asdict
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from shepherd.config.load import show_value
from shepherd.config.section import described_fields
from shepherd.config.sections import PermissionRule
from shepherd.config.settings import Config, aliases, expected, section_class
from shepherd.config.trust import STRICTNESS, UNRESTRICTED
from shepherd.sampling import DEFAULT_SAMPLING

PAGE = "settings.md"
SAMPLE = "config/config.toml"
WIDTH = 96

_PAGE_HEAD = """# Settings

Generated from `shepherd/config/`; do not edit. Where they are set and which one wins:
[configuration](../configuration.md). The last column says what a project's file may do.
"""
_SAMPLE_HEAD = """# Shepherd's settings with their defaults. Generated; copy what you change to
# ~/.config/shepherd/config.toml, or use `shepherd config set SECTION.KEY VALUE`.
"""
_EXAMPLES = {"system_message": '"You are terse."  # unset', "seed": "1  # unset"}
_TIGHTEN = {
    "mcp.enabled": "off only",
    "knowledge.enabled": "off only",
    "knowledge.skills": "off only",
    "memory.enabled": "off only",
    "model.name": "names only",
    "model.tools": "off only",
    "permissions.rules": "ask and deny only",
    "tools.allow_private_hosts": "off only",
    "tools.ask_providers": "off only",
    "tools.disabled": "adds to yours",
    "plugins.disabled": "adds to yours",
}


def render() -> str:
    """The page as Markdown."""
    parts = [_PAGE_HEAD]
    for name, section in _sections():
        parts += [f"## [{name}]\n", f"{_summary(section)}\n", *_table(name, section), ""]
    parts += ["## [[permissions.rules]]\n", f"{_summary(PermissionRule)}\n"]
    parts += [*_table("", PermissionRule), ""]
    return "\n".join(parts)


def render_sample() -> str:
    """The sample file: every setting as a comment."""
    parts = [_SAMPLE_HEAD]
    for name, section in _sections():
        parts += [f"# {_summary(section)}", f"[{name}]", *_sample_lines(section)]
    return "\n".join(parts)


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in Config.model_fields.items():
        yield name, section_class(field)


def _table(name: str, section: type[BaseModel]) -> Iterator[str]:
    yield "| key | value | default | meaning |" + (" project |" if name else "")
    yield "|---|---|---|---|" + ("---|" if name else "")
    for key, field in described_fields(section).items():
        cells = [f"`{key}`", expected(field), _default(key, field), _text(field)]
        if name:
            cells.append(may_be_set_by_projects(f"{name}.{key}"))
        yield "| " + " | ".join(cells) + " |"


def may_be_set_by_projects(key: str) -> str:
    """A text for the page that tells whether a project's file may set `key`."""
    if key in UNRESTRICTED or key.startswith("sampling."):
        return "yes"
    if key in STRICTNESS:
        return "stricter only"
    return _TIGHTEN.get(key, "no")


def _default(key: str, field: FieldInfo) -> str:
    if field.is_required():
        return "(must be given)"
    value = _default_value(key, field)
    return "(unset)" if value is None else f"`{show_value(value)}`"


def _default_value(key: str, field: FieldInfo) -> object:
    """The default value; None if there is none."""
    if field.default is not None:
        return cast(object, field.default)
    built_in: dict[str, object] = asdict(DEFAULT_SAMPLING)
    value = built_in.get(key)
    return list(cast(tuple[str, ...], value)) if isinstance(value, tuple) else value


def _sample_lines(section: type[BaseModel]) -> Iterator[str]:
    for key, field in described_fields(section).items():
        also = "".join(f" Also `{alias}`." for alias in aliases(field) if alias not in _text(field))
        yield from textwrap.wrap(
            f"{_text(field)}{also} ({expected(field)})",
            WIDTH,
            initial_indent="# ",
            subsequent_indent="# ",
        )
        value = _default_value(key, field)
        example = _EXAMPLES[key] if value is None else show_value(value)
        yield f"#{key} = {example}"
        yield ""


def _text(field: FieldInfo) -> str:
    return field.description or ""


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").splitlines()[0]

"""Settings as TOML text, each with the place it came from."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from pydantic import BaseModel

from shepherd.config.locate import line_of
from shepherd.config.settings import Config, Source
from shepherd.sampling import DEFAULT_SAMPLING


def show_config(config: Config, sections: Sequence[str]) -> str:
    """The named sections with all their values; what is unset is a comment."""
    return "\n\n".join(_show_section(config, name) for name in sections)


def show_value(value: object) -> str:
    """A value as TOML; "" when it is unset."""
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        inner = value.model_dump(exclude_defaults=True)
        return "{ " + ", ".join(f"{k} = {show_value(v)}" for k, v in inner.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(show_value(item) for item in cast(list[object], value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def default_of(section: str, key: str) -> object:
    """What counts for a setting that is not set; None where that is not one value."""
    if section != "sampling":
        return None
    value = cast(object, getattr(DEFAULT_SAMPLING, key))
    return list(cast(tuple[object, ...], value)) if isinstance(value, tuple) else value


def _show_section(config: Config, name: str) -> str:
    section = config.section(name)
    lines = [f"[{name}]"]
    for key in type(section).model_fields:
        value = cast(object, getattr(section, key))
        source = _place(config.source(f"{name}.{key}"), (name, key))
        text = f"{key} = {show_value(value)}"
        if value is None:
            text = f"# {key} = {show_value(default_of(name, key))}".rstrip()
            source += ", where the model's file says nothing" * (name == "sampling")
        lines.append(f"{text}  # {source}")
    if name == "permissions":
        lines += [f"# project: {show_value(rule)}" for rule in config.project_rules]
    return "\n".join(lines)


def _place(source: Source, location: tuple[str, str]) -> str:
    if source.path is None:
        return str(source)
    text = source.path.read_text(encoding="utf-8")
    return f"{_short(source.path)}:{line_of(text, location)}"


def _short(path: Path) -> str:
    home = os.environ.get("HOME", "")
    return str(path).replace(home, "~", 1) if home and path.is_relative_to(home) else str(path)

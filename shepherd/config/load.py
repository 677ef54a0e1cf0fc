"""Settings in layers: defaults < user's file < project's file < environment < flags."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import BaseModel, ValidationError

from shepherd import errors, sampling
from shepherd.config import files, layers, settings
from shepherd.config.paths import Paths, project_file
from shepherd.config.sections import PermissionRule
from shepherd.config.trust import admit

RULES = "permissions.rules"


def load_config(
    cwd: Path, env: Mapping[str, str], overrides: Mapping[str, object] | None = None
) -> settings.Config:
    """The settings in effect in `cwd`; `overrides` are flags by `section.key`.

    Raises ConfigError with the file and line, the variable or the flag of each error.
    """
    paths = Paths.from_env(env)
    defaults = layers.Layer(settings.LayerName.DEFAULT, {"llamacpp.models_dir": str(paths.models)})
    user = layers.read_file_layer(settings.LayerName.USER, paths.user_file)
    project, warnings = _project_layer(cwd, defaults.values | user.values)
    # a project's rules do not replace the user's: they count beside them if they are stricter
    rules = cast(list[dict[str, object]], project.values.pop(RULES, []))
    project.sources.pop(RULES, None)
    environment, flags = layers.environment_layer(env), layers.flag_layer(overrides or {})
    in_order = [defaults, user, project, environment, flags, layers.forced_layer(env)]
    # later ones win
    sources = {key: source for layer in in_order for key, source in layer.sources.items()}
    provenance = settings.Provenance(
        sources, tuple(PermissionRule.model_validate(rule) for rule in rules), warnings
    )
    return _merged(in_order, provenance)


def _project_layer(cwd: Path, below: Mapping[str, object]) -> tuple[layers.Layer, tuple[str, ...]]:
    """What a project's file may set, and warnings of the rest; `below` are the user's values."""
    path = project_file(cwd)
    if path is None:
        return layers.Layer(settings.LayerName.PROJECT), ()
    return admit(layers.read_file_layer(settings.LayerName.PROJECT, path), below)


def _merged(in_order: Sequence[layers.Layer], provenance: settings.Provenance) -> settings.Config:
    """The settings of all layers; raises ConfigError for values that exclude each other."""
    values = {key: value for layer in in_order for key, value in layer.values.items()}
    try:
        return settings.Config.model_validate(layers.nested(values), context=provenance)
    except ValidationError as error:
        # each layer is valid alone, so these are conflicts between the values of a section
        problems = error.errors(include_url=False)
        lines = [
            _places(str(p["loc"][0]), provenance.sources) + layers.describe(p) for p in problems
        ]
        raise errors.ConfigError("\n".join(lines)) from error


def _places(section: str, sources: Mapping[str, settings.Source]) -> str:
    """`FILE, VARIABLE: `: all places that set values of a section."""
    of_section = (s for key, s in sources.items() if key.startswith(f"{section}."))
    places = dict.fromkeys(map(str, of_section))  # each once, in their order
    return f"{', '.join(places)}: " if places else ""


def show_config(config: settings.Config, sections: Sequence[str]) -> str:
    """The named sections with all their values; unset settings are comments."""
    return "\n\n".join(_show_section(config, name) for name in sections)


def show_value(value: object) -> str:
    """A value as TOML; "" if it is unset."""
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        inner = value.model_dump(exclude_defaults=True)
        return "{ " + ", ".join(f"{k} = {show_value(v)}" for k, v in inner.items()) + " }"
    if isinstance(value, dict):
        items = cast(dict[str, object], value).items()
        return "{ " + ", ".join(f"{json.dumps(k)} = {show_value(v)}" for k, v in items) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(show_value(item) for item in cast(list[object], value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def default_of(section: str, key: str) -> object:
    """The effective value of an unset setting; None if it is not a single value."""
    if section != "sampling":
        return None
    value = cast(object, getattr(sampling.DEFAULT_SAMPLING, key))
    return list(cast(tuple[object, ...], value)) if isinstance(value, tuple) else value


def _show_section(config: settings.Config, name: str) -> str:
    """`[NAME]` and a line `KEY = VALUE  # SOURCE` for each setting."""
    lines = [f"[{name}]"]
    for key in settings.section_class(settings.Config.model_fields[name]).model_fields:
        value = config.value(f"{name}.{key}")
        source = _source_text(config.source(f"{name}.{key}"), (name, key))
        text = f"{key} = {show_value(value)}"
        if value is None:  # unset: what holds instead is a comment
            text = f"# {key} = {show_value(default_of(name, key))}".rstrip()
            if name == "sampling":
                source += ", unless the model's file says otherwise"
        lines.append(f"{text}  # {source}")
    if name == "permissions":
        lines += [f"# project: {show_value(rule)}" for rule in config.project_rules]
    return "\n".join(lines)


def _source_text(source: settings.Source, location: tuple[str, str]) -> str:
    """`FILE:LINE`, a variable, `command line` or `default`."""
    if source.path is None:
        return str(source)
    text = source.path.read_text(encoding="utf-8")
    return f"{_with_tilde(source.path)}:{files.line_of(text, location)}"


def _with_tilde(path: Path) -> str:
    """The path with `~` for the home directory."""
    home = os.environ.get("HOME", "")
    return str(path).replace(home, "~", 1) if home and path.is_relative_to(home) else str(path)

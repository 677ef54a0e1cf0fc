"""Settings in layers: defaults < user's file < project's file < environment < flags."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from shepherd.config.layers import (
    Layer,
    environment_layer,
    flag_layer,
    forced_layer,
    nested,
    read_file_layer,
)
from shepherd.config.paths import Paths, project_file
from shepherd.config.problems import describe
from shepherd.config.sections import PermissionRule
from shepherd.config.settings import Config, LayerName, Provenance, Source
from shepherd.config.trust import admit
from shepherd.errors import ConfigError

RULES = "permissions.rules"


def load_config(
    cwd: Path, env: Mapping[str, str], overrides: Mapping[str, object] | None = None
) -> Config:
    """The settings that count in `cwd`; `overrides` are flags by `section.key`.

    Raises ConfigError naming file and line, variable or flag of everything that is wrong.
    """
    paths = Paths.from_env(env)
    defaults = Layer(LayerName.DEFAULT, {"llamacpp.models_dir": str(paths.models)})
    user = read_file_layer(LayerName.USER, paths.user_file)
    project, warnings = _project_layer(cwd, paths, defaults.values | user.values)
    rules = cast(list[dict[str, object]], project.values.pop(RULES, []))
    project.sources.pop(RULES, None)
    layers = [
        *(defaults, user, project),
        *(environment_layer(env), flag_layer(overrides or {}), forced_layer(env)),
    ]
    sources = {key: source for layer in layers for key, source in layer.sources.items()}
    provenance = Provenance(
        sources, tuple(PermissionRule.model_validate(rule) for rule in rules), warnings
    )
    return _merged(layers, provenance)


def _project_layer(
    cwd: Path, paths: Paths, below: Mapping[str, object]
) -> tuple[Layer, tuple[str, ...]]:
    path = project_file(cwd)
    if path is None or path == paths.user_file:
        return Layer(LayerName.PROJECT), ()
    return admit(read_file_layer(LayerName.PROJECT, path), below)


def _merged(layers: Sequence[Layer], provenance: Provenance) -> Config:
    values = {key: value for layer in layers for key, value in layer.values.items()}
    try:
        return Config.model_validate(nested(values), context=provenance)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        text = "\n".join(_whole(p["loc"], describe(p), provenance.sources) for p in problems)
        raise ConfigError(text) from error


def _whole(location: tuple[str | int, ...], text: str, sources: Mapping[str, Source]) -> str:
    """A problem between several values of a section, with the places that set them."""
    section = str(location[0])
    places = {str(s): None for key, s in sources.items() if key.startswith(f"{section}.")}
    return f"{', '.join(places)}: {text}" if places else text

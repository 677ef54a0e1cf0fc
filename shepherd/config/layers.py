"""The layers of settings: a TOML file, the environment, flags."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast, get_args

from msgspec import Struct, field
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from shepherd import errors, validation
from shepherd.config import files, settings

ENVIRONMENT_PREFIX = "SHEPHERD_"
GPU_LAYERS, GPU_LAYERS_VARIABLE = "llamacpp.gpu_layers", "GGML_N_GPU_LAYERS"
MAX_PROBLEMS = 10
"""The maximum number of a layer's problems in one error."""

Table = dict[str, object]


class Layer(Struct, frozen=True):
    """The values from one source, as `section.key`; `text` is the file's text, for line numbers."""

    name: settings.LayerName
    values: dict[str, object] = field(default_factory=dict[str, object])
    sources: dict[str, settings.Source] = field(default_factory=dict[str, settings.Source])
    path: Path | None = None
    text: str = ""

    def where(self, location: tuple[str | int, ...]) -> str:
        """`FILE:LINE`, the variable or the flag that set the value at `location`."""
        if self.path is not None:
            return f"{self.path}:{files.line_of(self.text, location)}"
        # a value inside of a setting, as in a list, comes from where the setting does
        key = ".".join(str(part) for part in location[:2])
        source = self.sources.get(key)  # None for a key that the layer does not know
        return source.origin if source and source.origin else str(self.name)


def read_file_layer(name: settings.LayerName, path: Path) -> Layer:
    """The validated settings in the file at `path`; an empty layer if it does not exist.

    Raises ConfigError with the file and line of each error.
    """
    return parse_file_layer(name, path, files.read_settings(path))


def parse_file_layer(name: settings.LayerName, path: Path, text: str) -> Layer:
    """The settings in `text`, the current or future content of `path`; raises ConfigError."""
    data = files.parse_toml(path, text)
    bare = Layer(name, path=path, text=text)  # enough to find the line of an error
    values = _canonical(bare, {k: cast(Table, t) for k, t in data.items() if isinstance(t, dict)})
    _check(bare, data)  # the whole data, because values outside of sections are errors
    source = settings.Source(name, path=path)
    return Layer(name, values, dict.fromkeys(values, source), path, text)


def environment_layer(env: Mapping[str, str]) -> Layer:
    """The settings in variables `SHEPHERD_SECTION__KEY`; empty ones count as unset."""
    values: dict[str, object] = {}
    sources: dict[str, settings.Source] = {}
    for variable, text in sorted(env.items()):
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name == variable or "__" not in name or not text:
            continue  # not a setting: other programs' variables, SHEPHERD_ADMIN_KEY
        key = settings.first_name(name.lower().replace("__", ".", 1))
        try:
            values[key] = settings.parse_text(key, text)
        except errors.ConfigError as error:
            raise errors.ConfigError(f"{variable}: {error}") from error
        sources[key] = settings.Source(settings.LayerName.ENVIRONMENT, variable)
    return _checked(Layer(settings.LayerName.ENVIRONMENT, values, sources))


def forced_layer(env: Mapping[str, str]) -> Layer:
    """The setting from llama.cpp's own variable, which overrides all others."""
    text = env.get(GPU_LAYERS_VARIABLE, "").strip()
    if not text:
        return Layer(settings.LayerName.ENVIRONMENT)
    source = settings.Source(settings.LayerName.ENVIRONMENT, GPU_LAYERS_VARIABLE)
    values = {GPU_LAYERS: settings.parse_text(GPU_LAYERS, text)}
    return _checked(Layer(settings.LayerName.ENVIRONMENT, values, {GPU_LAYERS: source}))


def flag_layer(overrides: Mapping[str, object]) -> Layer:
    """The settings from flags, by `section.key`."""
    sources = {key: settings.Source(settings.LayerName.FLAG, "command line") for key in overrides}
    return _checked(Layer(settings.LayerName.FLAG, dict(overrides), sources))


def nested(values: Mapping[str, object]) -> dict[str, Table]:
    """`{"section.key": value}` as tables."""
    tables: dict[str, Table] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        tables.setdefault(section, {})[name] = value
    return tables


def _checked(layer: Layer) -> Layer:
    """The layer; raises ConfigError if one of its values is wrong by itself."""
    _check(layer, nested(layer.values))
    return layer


def _check(layer: Layer, data: Mapping[str, object]) -> None:
    """Raise ConfigError with each value that is wrong by itself."""
    try:
        settings.Config.model_validate(data)
    except ValidationError as error:
        problems = [p for p in error.errors(include_url=False) if not _between_layers(p)]
        if problems:
            lines = [f"{layer.where(p['loc'])}: {describe(p)}" for p in problems[:MAX_PROBLEMS]]
            if len(problems) > MAX_PROBLEMS:
                lines.append(f"and {len(problems) - MAX_PROBLEMS} more")
            raise errors.ConfigError("\n".join(lines)) from error


def _between_layers(problem: ErrorDetails) -> bool:
    """Whether another layer may fix the problem, because the check covers a whole section."""
    return problem["type"] == "value_error" and len(problem["loc"]) == 1


def _canonical(layer: Layer, data: Mapping[str, Table]) -> dict[str, object]:
    """Flat values by each setting's first name; raises ConfigError if one is set by two names."""
    values = {f"{section}.{key}": value for section, t in data.items() for key, value in t.items()}
    named: dict[str, object] = {}
    for name, value in values.items():
        key = settings.first_name(name)
        # set beside its first name, or beside a further one
        if key != name and (key in values or key in named):
            where = layer.where(tuple(name.split(".")))
            raise errors.ConfigError(f"{where}: {name} is another name of {key}; set one of them")
        named[key] = value
    return named


def describe(problem: ErrorDetails) -> str:
    """The sentence for one of pydantic's problems with a Config."""
    location, key = problem["loc"], validation.key_of(problem)
    # of a section as a whole, all other problems are that it is no table
    if len(location) == 1 and problem["type"] not in ("extra_forbidden", "value_error"):
        return f"{key} is a section: write [{key}]"
    field = _field_at(location)
    return validation.describe_problem(
        problem,
        key,
        unknown=_unknown(location, problem["input"]),
        expected=settings.expected(field) if field else "",
        show_value=True,
    )


def _unknown(location: tuple[str | int, ...], value: object) -> str:
    """The sentence for a key that does not exist; a table is taken for a section."""
    key = ".".join(str(part) for part in location)
    if len(location) > 1:
        return settings.unknown_key(key)
    if isinstance(value, dict):
        guess = validation.nearest(key, settings.Config.model_fields)
        return f"unknown section [{key}]" + (f"; did you mean [{guess}]?" if guess else "")
    return settings.unknown_key(key) + " (settings belong in a section)"


def _field_at(location: tuple[str | int, ...]) -> FieldInfo | None:
    """The field at `location`; None inside a list of plain values."""
    kind: type[BaseModel] | None = settings.Config
    field: FieldInfo | None = None
    for part in location:
        if isinstance(part, int):  # an item of the list: its class is known already
            continue
        field = _field_called(part, kind) if kind else None
        if field is None:
            return None
        kind = _inner_model(field)  # None: a plain value has no fields
    return field if not isinstance(location[-1], int) else None


def _field_called(name: str, kind: type[BaseModel]) -> FieldInfo | None:
    """The field of a class by its name, or by another name that a file may use."""
    fields = kind.model_fields
    with_alias = (field for field in fields.values() if name in settings.aliases(field))
    return fields.get(name) or next(with_alias, None)


def _inner_model(field: FieldInfo) -> type[BaseModel] | None:
    """The class of a section, or of a list's items."""
    kind = settings.bare_type(field)
    inner = next(iter(get_args(kind)), kind)
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None

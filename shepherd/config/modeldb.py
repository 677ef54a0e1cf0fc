"""What is known of models by their names: context, output limit, vision, thinking, parameters."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from shepherd.config.fields import expected
from shepherd.config.files import read_text
from shepherd.config.layers import MAX_FILE_BYTES
from shepherd.config.locate import line_of
from shepherd.config.sections import Section
from shepherd.errors import ConfigError
from shepherd.validation import describe_problem, did_you_mean

PACKAGED = "models.toml"
LIMIT_PARAMETERS = Literal["", "max_tokens", "max_completion_tokens", "max_output_tokens"]


class ModelEntry(Section):
    """One entry of the database; what is unset is left to shorter patterns and to the server."""

    match: Annotated[
        list[str], Field(min_length=1, description="Names that it is for, with * and ?.")
    ]
    context: Annotated[
        int | None, Field(ge=256, le=16_777_216, description="Tokens of context.")
    ] = None
    output: Annotated[
        int | None, Field(ge=1, le=16_777_216, description="Longest answer in tokens.")
    ] = None
    vision: Annotated[bool | None, Field(description="Whether it sees images.")] = None
    thinking: Annotated[bool | None, Field(description="Whether it can reason first.")] = None
    limit_parameter: Annotated[
        LIMIT_PARAMETERS | None, Field(description="What the API calls the longest answer.")
    ] = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model; 0, False or "" where nothing is, for `vision` None.

    `context_source` says, for the user, where the context was learned.
    """

    id: str
    context: int = 0
    output: int = 0
    vision: bool | None = None
    thinking: bool = False
    limit_parameter: str = ""
    context_source: str = ""


@dataclass(frozen=True, slots=True)
class ModelDatabase:
    """Entries by pattern, in files: what a later file says goes before what an earlier one says."""

    layers: Sequence[tuple[str, Sequence[ModelEntry]]] = field(default_factory=tuple)

    @classmethod
    def load(cls, user_file: Path) -> "ModelDatabase":
        """The packaged database under the user's file, which need not exist.

        Raises ConfigError naming file and line of what is wrong in the user's.
        """
        packaged = files("shepherd.config").joinpath(PACKAGED).read_text(encoding="utf-8")
        layers = [("the model database", _entries(packaged, PACKAGED))]
        try:
            text = read_text(user_file, MAX_FILE_BYTES)
        except FileNotFoundError:
            return cls(layers)
        return cls([*layers, (str(user_file), _entries(text, str(user_file)))])

    def facts(self, model: str) -> ModelFacts:
        """What is known of `model`; within a file the longest pattern that matches counts."""
        values: dict[str, Any] = {}
        names = _names(model)
        for source, entries in self.layers:
            for entry in _matching(entries, names):
                entry_values = entry.model_dump(exclude_unset=True, exclude={"match"})
                values |= entry_values
                if "context" in entry_values:
                    values["context_source"] = source
        return ModelFacts(model, **values)


def _matching(entries: Sequence[ModelEntry], names: Sequence[str]) -> list[ModelEntry]:
    """The entries that match, the most exact one last."""
    ranked = [
        (max(len(p) for p in entry.match if _fits(p, names)), entry)
        for entry in entries
        if any(_fits(p, names) for p in entry.match)
    ]
    return [entry for _, entry in sorted(ranked, key=lambda pair: pair[0])]


def _names(model: str) -> list[str]:
    """The name as it is and without the path before it: `openai/gpt-5` is `gpt-5` too."""
    whole = model.lower()
    return list(dict.fromkeys([whole, whole.rsplit("/", 1)[-1]]))


def _fits(pattern: str, names: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern.lower()) for name in names)


def _entries(text: str, name: str) -> list[ModelEntry]:
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{name}: not valid TOML: {error}") from error
    tables = data.get("model", [])
    if set(data) - {"model"} or not isinstance(tables, list):
        raise ConfigError(f"{name}: it holds [[model]] tables and nothing else")
    return [_entry(text, name, i, t) for i, t in enumerate(cast(list[object], tables))]


def _entry(text: str, name: str, index: int, table: object) -> ModelEntry:
    try:
        return ModelEntry.model_validate(table)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = f"{name}:{line_of(text, ('model', index, *problem['loc']))}"
        raise ConfigError(f"{where}: {_describe(problem)}") from error


def _describe(problem: ErrorDetails) -> str:
    key = str(next(iter(problem["loc"]), "model"))
    field = ModelEntry.model_fields.get(key)
    return describe_problem(
        problem,
        key,
        unknown=f"unknown key {key}{did_you_mean(key, ModelEntry.model_fields)}",
        expected=expected(field) if field else "a table",
    )

"""Facts about models by their names: context, output limit, vision, thinking, parameters."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from shepherd import errors, validation
from shepherd.config import section, settings
from shepherd.config.files import line_of, parse_toml, read_settings

PACKAGED = "models.toml"
LIMIT_PARAMETERS = Literal["", "max_tokens", "max_completion_tokens", "max_output_tokens"]


class ModelEntry(section.Section):
    """One entry of the database; shorter patterns and the server supply its unset values."""

    match: list[str] = Field(min_length=1)
    """Names of models, with * and ?."""

    context: int | None = Field(default=None, ge=256, le=16_777_216)
    """Context size in tokens."""

    output: int | None = Field(default=None, ge=1, le=16_777_216)
    """Maximum answer in tokens."""

    vision: bool | None = None
    """Whether it accepts images."""

    thinking: bool | None = None
    """Whether it can reason before it answers."""

    limit_parameter: LIMIT_PARAMETERS | None = None
    """The API's parameter for the maximum answer."""


class ModelFacts(Struct, frozen=True):
    """The known facts about a model; unknown ones are 0, False or "", and None for `vision`.

    `context_source` tells the user where the context size is from.
    """

    id: str
    context: int = 0
    output: int = 0
    vision: bool | None = None
    thinking: bool = False
    limit_parameter: str = ""
    context_source: str = ""


def model_facts(model: str, user_file: Path) -> ModelFacts:
    """The facts in the packaged database, overridden by the user's file, which need not exist.

    Within a file, the longest pattern that matches the model wins. Raises ConfigError with the file
    and line of an error in the user's file.
    """
    packaged = files("shepherd.config").joinpath(PACKAGED).read_text(encoding="utf-8")
    sources = {
        "the model database": _entries(packaged, PACKAGED),
        str(user_file): _entries(read_settings(user_file), str(user_file)),
    }
    values: dict[str, Any] = {}
    # with and without its path: `openai/gpt-5` is also `gpt-5`
    names = (model.lower(), model.lower().rpartition("/")[2])
    for source, entries in sources.items():
        matching = [entry for entry in entries if _exactness(entry, names)]
        # the longest pattern comes last, and so overrides the others
        for entry in sorted(matching, key=lambda entry: _exactness(entry, names)):
            entry_values = entry.model_dump(exclude_defaults=True)
            del entry_values["match"]
            values |= entry_values
            if "context" in entry_values:
                values["context_source"] = source
    return ModelFacts(model, **values)


def _exactness(entry: ModelEntry, names: Sequence[str]) -> int:
    """The length of the longest pattern that matches one of the names; 0 if none does."""
    matching = (p for p in entry.match if any(fnmatchcase(name, p.lower()) for name in names))
    return max(map(len, matching), default=0)


def _entries(text: str, name: str) -> list[ModelEntry]:
    """The entries of a file's text; raises ConfigError with the file's name and line."""
    data = parse_toml(name, text)
    tables: object = data.get("model", [])
    if set(data) - {"model"} or not isinstance(tables, list):
        raise errors.ConfigError(f"{name}: it holds [[model]] tables and nothing else")
    return [
        _entry(text, name, index, table) for index, table in enumerate(cast(list[object], tables))
    ]


def _entry(text: str, name: str, index: int, table: object) -> ModelEntry:
    """The entry of one table; raises ConfigError with the line of its first problem."""
    try:
        return ModelEntry.model_validate(table)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = f"{name}:{line_of(text, ('model', index, *problem['loc']))}"
        raise errors.ConfigError(f"{where}: {_describe(problem)}") from error


def _describe(problem: ErrorDetails) -> str:
    """The sentence for one of pydantic's problems with an entry."""
    key = str(problem["loc"][0] if problem["loc"] else "model")  # no place: it is no table
    field = ModelEntry.model_fields.get(key)
    return validation.describe_problem(
        problem,
        key,
        unknown=f"unknown key {key}{validation.did_you_mean(key, ModelEntry.model_fields)}",
        expected=settings.expected(field) if field else "a table",
    )

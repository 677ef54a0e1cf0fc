"""All settings of one run, the source of each value, and the values that each accepts."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Literal, cast, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from msgspec import Struct
from pydantic import AliasChoices, Field, PrivateAttr
from pydantic.fields import FieldInfo

from shepherd import errors, validation
from shepherd.config import sections
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.section import Section
from shepherd.config.server import ServerSection


class LayerName(StrEnum):
    """The layers of settings; later ones win."""

    DEFAULT = "default"
    USER = "user"
    PROJECT = "project"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Source(Struct, frozen=True):
    """The source of a value: `origin` is a variable's or flag's name, `path` is the file."""

    layer: LayerName
    origin: str = ""
    path: Path | None = None

    def __str__(self) -> str:
        return str(self.path) if self.path else self.origin or str(self.layer)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Everything about the values of the settings, but not the values.

    All are equal, because settings are equal by their values.
    """

    sources: Mapping[str, Source] = field(default_factory=dict[str, Source], compare=False)
    project_rules: tuple[sections.PermissionRule, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)


DEFAULT_SOURCE = Source(LayerName.DEFAULT)


class Config(Section):
    """The settings of one run; `Config()` is the defaults alone."""

    model: sections.ModelSection = Field(default_factory=sections.ModelSection)
    llamacpp: LlamaCppSection = Field(default_factory=LlamaCppSection)
    sampling: sections.SamplingSection = Field(default_factory=sections.SamplingSection)
    permissions: sections.PermissionsSection = Field(default_factory=sections.PermissionsSection)
    tools: sections.ToolsSection = Field(default_factory=sections.ToolsSection)
    memory: sections.MemorySection = Field(default_factory=sections.MemorySection)
    undo: sections.UndoSection = Field(default_factory=sections.UndoSection)
    mcp: sections.McpSection = Field(default_factory=sections.McpSection)
    knowledge: sections.KnowledgeSection = Field(default_factory=sections.KnowledgeSection)
    hooks: sections.HooksSection = Field(default_factory=sections.HooksSection)
    terminal: sections.TerminalSection = Field(default_factory=sections.TerminalSection)
    server: ServerSection = Field(default_factory=ServerSection)
    plugins: sections.PluginsSection = Field(default_factory=sections.PluginsSection)

    _provenance: Provenance = PrivateAttr(default_factory=Provenance)

    def model_post_init(self, context: object, /) -> None:
        """Keep the Provenance that is the context of `model_validate`."""
        if isinstance(context, Provenance):
            self._provenance = context

    @property
    def project_rules(self) -> tuple[sections.PermissionRule, ...]:
        """The permission rules of a project's file, which others may have written."""
        return self._provenance.project_rules

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the user about the files."""
        return self._provenance.warnings

    def source(self, key: str) -> Source:
        """The source of the value of `section.key`."""
        return self._provenance.sources.get(key, DEFAULT_SOURCE)

    def value(self, key: str) -> object:
        """The value of `section.key`."""
        section, _, name = key.partition(".")
        return cast(object, getattr(getattr(self, section), name))


_PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def all_fields() -> dict[str, FieldInfo]:
    """Every setting as `section.key`, in the order of the sections."""
    return {
        f"{name}.{key}": field
        for name in Config.model_fields
        for key, field in _fields_in(name).items()
    }


def find_field(key: str) -> FieldInfo | None:
    """The setting called `section.key`, None if there is none."""
    section, _, name = key.partition(".")
    return _fields_in(section).get(name)


def first_name(key: str) -> str:
    """`section.key` with the setting's first name if `key` uses another one; else `key`."""
    section, _, name = key.partition(".")
    fields = _fields_in(section).items()
    return next((f"{section}.{k}" for k, field in fields if name in aliases(field)), key)


def _fields_in(section: str) -> Mapping[str, FieldInfo]:
    """The settings of a section by their names; none for an unknown section."""
    field = Config.model_fields.get(section)
    return section_class(field).model_fields if field else {}


def section_class(field: FieldInfo) -> type[Section]:
    """The class of one of Config's fields."""
    return cast(type[Section], field.annotation)


def aliases(field: FieldInfo) -> list[str]:
    """All names of the field in a settings file, except the first."""
    alias = field.validation_alias
    return [str(name) for name in alias.choices[1:]] if isinstance(alias, AliasChoices) else []


def bare_type(field: FieldInfo) -> object:
    """The field's type without `| None`."""
    alternatives = get_args(field.annotation)  # () of a class, `(int, None)` of `int | None`
    if NoneType not in alternatives:
        return field.annotation
    return next(kind for kind in alternatives if kind is not NoneType)


def allowed_words(kind: object) -> list[str]:
    """The allowed texts of a value of this type, [] if any value is allowed."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return [word.value for word in kind]
    return [str(word) for word in get_args(kind)] if get_origin(kind) is Literal else []


def expected(field: FieldInfo) -> str:
    """A description of the field's valid values: `a whole number from 0 to 65535`."""
    kind = bare_type(field)
    low, high = limits(field)
    if low is not None:  # then there is a highest value, too
        return f"{_kind_in_words(kind)} from {low} to {high}"
    has_length = any(isinstance(rule, MinLen) for rule in field.metadata)
    return "a text that is not empty" if has_length else _kind_in_words(kind)


def limits(field: FieldInfo) -> tuple[object, object]:
    """The lowest and the highest value of a number, each None if there is none."""
    low = next((rule.ge for rule in field.metadata if isinstance(rule, Ge)), None)
    return low, next((rule.le for rule in field.metadata if isinstance(rule, Le)), None)


def _kind_in_words(kind: object) -> str:
    """`a whole number`, `one of "auto", "on"`: a type for a user."""
    if words := allowed_words(kind):
        return "one of " + ", ".join(json.dumps(word) for word in words)
    if get_origin(kind) is list:
        return "a list of texts" if get_args(kind)[0] is str else "an array of tables"
    return _PLAIN[kind] if isinstance(kind, type) and kind in _PLAIN else "a table"


def parse_text(key: str, text: str) -> object:
    """The value of `text` from a variable or the command line.

    Texts are used unchanged; other types are parsed as TOML. A value of the wrong type is returned
    unchanged, and validation reports it. Raises ConfigError if there is no setting called `key`.
    """
    field = find_field(key)
    if field is None:
        raise errors.ConfigError(unknown_key(key))
    kind = bare_type(field)
    if kind is str or allowed_words(kind):
        return text
    if kind is bool:
        return parse_bool(text)
    if kind == list[str] and not text.lstrip().startswith("["):
        return [text]  # a list of one text needs no brackets
    return _toml_value(text)


def parse_bool(text: str) -> bool | str:
    """True or False for a word that means it, else the text."""
    word = text.lower()
    if word in _TRUE:
        return True
    return False if word in _FALSE else text


def _toml_value(text: str) -> object:
    """The value that a text is in TOML, else the text."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    has_more = len(parsed) > 1  # a text of several lines can set further keys
    return text if has_more else parsed["value"]


def unknown_key(key: str) -> str:
    """A message that there is no setting `key`, with the most similar one."""
    fields = all_fields()
    # the right name in the wrong section, or in none, is a better guess than a similar word
    by_name = {key.partition(".")[2]: key for key in fields}
    guess = by_name.get(key.rpartition(".")[2]) or validation.nearest(key, fields)
    return f"unknown setting {key}" + (f"; did you mean {guess}?" if guess else "")

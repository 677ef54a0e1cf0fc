"""The base of all sections of the settings, and the words that settings and commands share."""

import ast
import inspect
import sys
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from itertools import pairwise

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

LIVE = "live"
"""Marks, in `Annotated`, a setting that a reload applies to a running server."""


class Section(BaseModel):
    """A section; it refuses unknown keys and values of another type.

    `model_copy(update=...)` changes a copy without a check.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=True,
        allow_inf_nan=False,
        defer_build=True,  # the check of a section is made with its first value
    )


def described_fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a section, each with the docstring below it as its `description`.

    This reads the source, so it is for help and for reference pages. pydantic's own switch,
    `use_attribute_docstrings`, would read it at each start of the program.
    """
    texts: dict[str, str] = {}
    for base in reversed(section.__mro__):  # the section itself last: its own texts win
        if issubclass(base, BaseModel) and base is not BaseModel:
            texts |= field_texts(base)
    for name, field in section.model_fields.items():
        field.description = field.description or texts.get(name)
    return section.model_fields


@cache  # of the four groups of options at each start
def _source(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def field_texts(section: type) -> Mapping[str, str]:
    """The docstring below each field that stands in the own source of a class."""
    classes = [n for n in _source(section.__module__).body if isinstance(n, ast.ClassDef)]
    bodies = [node.body for node in classes if node.name == section.__name__]
    texts: dict[str, str] = {}
    for pair in pairwise(bodies[0] if bodies else ()):  # `create_model` leaves no source
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split())
            case _:
                pass
    return texts


class ApproveMode(StrEnum):
    """The tool calls that run without approval."""

    ASK = "ask"
    EDITS = "edits"
    PLAN = "plan"
    REVIEW = "review"
    AUTO = "auto"
    ALL = "all"
    NONE = "none"


class SandboxMode(StrEnum):
    """Whether commands run in a sandbox: if one works, always, or never."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


class AuthMode(StrEnum):
    """How the server knows its clients: not at all, or by keys."""

    NONE = "none"
    JSON = "json"


class ShowToolCalls(StrEnum):
    """Where an answer of the server's agent tells which tools ran."""

    OFF = "off"
    REASONING = "reasoning"
    CONTENT = "content"


class SharedPrefix(StrEnum):
    """What keys share of the texts that are in a model's memory."""

    PROMPT = "prompt"
    KEY = "key"


class LogFormat(StrEnum):
    """The form of the server's log."""

    TEXT = "text"
    JSON = "json"


class Effort(StrEnum):
    """How much a model reasons, in rising order; no API supports all of them."""

    UNSET = ""
    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"

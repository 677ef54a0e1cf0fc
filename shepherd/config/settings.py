"""All settings of one run, and where each value came from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from shepherd.config.sampling import SamplingSection
from shepherd.config.sections import (
    LlamaCppSection,
    ModelSection,
    PermissionRule,
    PermissionsSection,
    PluginsSection,
    Section,
    ServerSection,
    TerminalSection,
    ToolsSection,
)


class MemorySection(Section):
    """What outlives a conversation's context: messages that left it, and facts."""

    enabled: Annotated[
        bool,
        Field(
            description="Keep what leaves a full context, and facts. Nothing is kept either when "
            "`terminal.save_sessions` is off."
        ),
    ] = True
    tools: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Offer the model `search_memory` and the tools for facts; `auto` does not "
            "where a model was trained on a fixed list of tools, as the built-in one was."
        ),
    ] = "auto"
    max_mib: Annotated[
        int,
        Field(ge=1, le=1_048_576, description="MiB of text that are kept; the oldest goes first."),
    ] = 64


class LayerName(StrEnum):
    """Where a value can come from; later ones win."""

    DEFAULT = "default"
    USER = "user"
    PROJECT = "project"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Source:
    """Where one value came from: `origin` is a variable's or flag's name, `path` the file."""

    layer: LayerName
    origin: str = ""
    path: Path | None = None

    def __str__(self) -> str:
        return str(self.path) if self.path else self.origin or str(self.layer)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Handed to `Config.model_validate` as its context: what is not a value itself."""

    sources: Mapping[str, Source]
    project_rules: tuple[PermissionRule, ...] = ()
    warnings: tuple[str, ...] = ()


DEFAULT_SOURCE = Source(LayerName.DEFAULT)


class Config(BaseModel):
    """The settings of one run, frozen; `Config()` is the defaults alone.

    `project_rules` are the permission rules of a project's file, which others may have written.
    `warnings` holds what the user should hear about the files, one sentence each.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: ModelSection = ModelSection()
    llamacpp: LlamaCppSection = LlamaCppSection()
    sampling: SamplingSection = SamplingSection()
    permissions: PermissionsSection = PermissionsSection()
    tools: ToolsSection = ToolsSection()
    memory: MemorySection = MemorySection()
    terminal: TerminalSection = TerminalSection()
    server: ServerSection = ServerSection()
    plugins: PluginsSection = PluginsSection()

    _sources: dict[str, Source] = PrivateAttr(default_factory=dict[str, Source])
    _project_rules: tuple[PermissionRule, ...] = PrivateAttr(default=())
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    def model_post_init(self, context: object, /) -> None:
        if isinstance(context, Provenance):
            self._sources.update(context.sources)
            self._project_rules = context.project_rules
            self._warnings = context.warnings

    @property
    def project_rules(self) -> tuple[PermissionRule, ...]:
        return self._project_rules

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    def source(self, key: str) -> Source:
        """Where the value of `section.key` came from."""
        return self._sources.get(key, DEFAULT_SOURCE)

    def section(self, name: str) -> Section:
        """The section called `name`; raises KeyError if there is none."""
        if name not in type(self).model_fields:
            raise KeyError(name)
        section: Section = getattr(self, name)
        return section

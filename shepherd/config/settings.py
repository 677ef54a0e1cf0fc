"""All settings of one run, and the source of each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr

from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.section import Section
from shepherd.config.sections import (
    HooksSection,
    KnowledgeSection,
    ModelSection,
    SamplingSection,
    TerminalSection,
)
from shepherd.config.server import ServerSection
from shepherd.config.tools import PermissionRule, PermissionsSection, PluginsSection, ToolsSection


class MemorySection(Section):
    """The memory beyond a conversation's context: evicted messages, and facts."""

    enabled: Annotated[
        bool,
        Field(
            description="Keep messages that leave a full context, and facts. Nothing is kept if "
            "`terminal.save_sessions` is off."
        ),
    ] = True
    tools: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Offer the model `search_memory` and the tools for facts; `auto` does not "
            "if a model was trained on a fixed list of tools, like the built-in one."
        ),
    ] = "auto"
    max_mib: Annotated[
        int,
        Field(ge=1, le=1_048_576, description="MiB of stored text; the oldest goes first."),
    ] = 64


class McpSection(Section):
    """Servers of the Model Context Protocol; `shepherd mcp` manages them."""

    enabled: Annotated[
        bool, Field(description="Start the MCP servers of the user and of the project.")
    ] = True


class UndoSection(Section):
    """Files as they were before tools changed them, for `/undo` and `/rewind`."""

    enabled: Annotated[
        bool,
        Field(
            description="Keep files before tools change them. Nothing is kept if "
            "`terminal.save_sessions` is off."
        ),
    ] = True
    max_mib: Annotated[
        int, Field(ge=1, le=1_048_576, description="MiB of kept files; the oldest go first.")
    ] = 512
    max_days: Annotated[
        int, Field(ge=1, le=3650, description="Days after which kept files are removed.")
    ] = 30
    file_mib: Annotated[
        int, Field(ge=1, le=1024, description="MiB of the largest file that is kept.")
    ] = 8
    command_mib: Annotated[
        int,
        Field(
            ge=0,
            le=65_536,
            description="MiB that are kept of the working directory before a command runs; "
            "0 = changes of commands can't be undone.",
        ),
    ] = 64


class LayerName(StrEnum):
    """The layers of settings; later ones win."""

    DEFAULT = "default"
    USER = "user"
    PROJECT = "project"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Source:
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
    project_rules: tuple[PermissionRule, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)


DEFAULT_SOURCE = Source(LayerName.DEFAULT)


class Config(Section):
    """The settings of one run; `Config()` is the defaults alone."""

    model: ModelSection = Field(default_factory=ModelSection)
    llamacpp: LlamaCppSection = Field(default_factory=LlamaCppSection)
    sampling: SamplingSection = Field(default_factory=SamplingSection)
    permissions: PermissionsSection = Field(default_factory=PermissionsSection)
    tools: ToolsSection = Field(default_factory=ToolsSection)
    memory: MemorySection = Field(default_factory=MemorySection)
    undo: UndoSection = Field(default_factory=UndoSection)
    mcp: McpSection = Field(default_factory=McpSection)
    knowledge: KnowledgeSection = Field(default_factory=KnowledgeSection)
    hooks: HooksSection = Field(default_factory=HooksSection)
    terminal: TerminalSection = Field(default_factory=TerminalSection)
    server: ServerSection = Field(default_factory=ServerSection)
    plugins: PluginsSection = Field(default_factory=PluginsSection)

    _provenance: Provenance = PrivateAttr(default_factory=Provenance)

    def model_post_init(self, context: object, /) -> None:
        """Keep the Provenance that is the context of `model_validate`."""
        if isinstance(context, Provenance):
            self._provenance = context

    @property
    def project_rules(self) -> tuple[PermissionRule, ...]:
        """The permission rules of a project's file, which others may have written."""
        return self._provenance.project_rules

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the user about the files."""
        return self._provenance.warnings

    def source(self, key: str) -> Source:
        """The source of the value of `section.key`."""
        return self._provenance.sources.get(key, DEFAULT_SOURCE)

    def section(self, name: str) -> Section:
        """The section called `name`; raises KeyError if there is none."""
        if name not in Config.model_fields:
            raise KeyError(name)
        section: Section = getattr(self, name)
        return section

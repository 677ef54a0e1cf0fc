"""All settings of one run, and the source of each value."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, PrivateAttr
from pydantic_core import CoreSchema, core_schema

from shepherd.config.agent.hooks import HooksSection
from shepherd.config.agent.knowledge import KnowledgeSection
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.model import ModelSection
from shepherd.config.sampling import SamplingSection
from shepherd.config.section import Section
from shepherd.config.server import ServerSection
from shepherd.config.terminal import TerminalSection
from shepherd.config.tools import PermissionRule, PermissionsSection, PluginsSection, ToolsSection
from shepherd.dataclass import dataclass


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
    """The context of `Config.model_validate`: everything about the values, but not the values."""

    sources: Mapping[str, Source]
    project_rules: tuple[PermissionRule, ...] = ()
    warnings: tuple[str, ...] = ()


DEFAULT_SOURCE = Source(LayerName.DEFAULT)


S = TypeVar("S", bound=Section)


class _ByItsModel:
    """Makes a field's model validate the field's value, which builds the model's validator then."""

    def __get_pydantic_core_schema__(
        self, source: type[Section], _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(source.model_validate)


Lazy: TypeAlias = Annotated[S, _ByItsModel()]
"""A section; its validator is built only if a layer sets a value, because most set few."""


def _default(section: type[S]) -> S:
    """The section with its defaults, which need no validation."""
    return Field(default_factory=section.model_construct)


class Config(BaseModel):
    """The settings of one run, frozen; `Config()` is the defaults alone.

    `project_rules` are the permission rules of a project's file, which others may have written.
    `warnings` holds sentences for the user about the files.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: Lazy[ModelSection] = _default(ModelSection)
    llamacpp: Lazy[LlamaCppSection] = _default(LlamaCppSection)
    sampling: Lazy[SamplingSection] = _default(SamplingSection)
    permissions: Lazy[PermissionsSection] = _default(PermissionsSection)
    tools: Lazy[ToolsSection] = _default(ToolsSection)
    memory: Lazy[MemorySection] = _default(MemorySection)
    undo: Lazy[UndoSection] = _default(UndoSection)
    mcp: Lazy[McpSection] = _default(McpSection)
    knowledge: Lazy[KnowledgeSection] = _default(KnowledgeSection)
    hooks: Lazy[HooksSection] = _default(HooksSection)
    terminal: Lazy[TerminalSection] = _default(TerminalSection)
    server: Lazy[ServerSection] = _default(ServerSection)
    plugins: Lazy[PluginsSection] = _default(PluginsSection)

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
        """The source of the value of `section.key`."""
        return self._sources.get(key, DEFAULT_SOURCE)

    def section(self, name: str) -> Section:
        """The section called `name`; raises KeyError if there is none."""
        if name not in type(self).model_fields:
            raise KeyError(name)
        section: Section = getattr(self, name)
        return section

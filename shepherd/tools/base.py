"""What a tool is: arguments as a pydantic model, what it touches, and how it runs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from shepherd.messages import ToolSpec


class Arguments(BaseModel):
    """Base of all tool arguments: unknown names are refused, sensible conversions are made."""

    model_config = ConfigDict(extra="forbid", frozen=True)


A = TypeVar("A", bound=Arguments)


class AccessKind(StrEnum):
    """What a call does to the thing it touches."""

    READ = "read"
    WRITE = "write"
    SHELL = "shell"
    NETWORK = "network"
    ENVIRONMENT = "environment"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Access:
    """One thing that a call touches: a resolved absolute path, a command, a URL, a variable."""

    kind: AccessKind
    target: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave: `content` is for the model, `display` (a diff, say) for the user."""

    content: str
    ok: bool = True
    display: str = ""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where and under which limits a tool runs.

    `timeout` is in seconds, `output_bytes` caps a result's text, `spill_dir` takes what is cut.
    """

    cwd: Path
    spill_dir: Path
    timeout: float = 120.0
    output_bytes: int = 32_768
    allow_private_hosts: bool = False
    environment: dict[str, str] = field(default_factory=dict[str, str])


class Tool(ABC, Generic[A]):
    """One tool; stateless, so that one instance serves every session."""

    name: ClassVar[str]
    description: ClassVar[str]
    arguments: type[A]

    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        from shepherd.tools.schema import compact_schema  # keeps base free of the schema code

        return ToolSpec(self.name, self.description, compact_schema(self.arguments))

    @abstractmethod
    def accesses(self, arguments: A, context: ToolContext) -> list[Access]:
        """Everything that the call would touch, resolved; decides which rules apply."""

    def preview(self, arguments: A, context: ToolContext) -> str:
        """What a user is shown before approving: a diff or the command; "" if nothing more."""
        return ""

    @abstractmethod
    async def run(self, arguments: A, context: ToolContext) -> ToolResult:
        """Do it; raises ToolError with the text for the model. Cancelling the task stops it."""

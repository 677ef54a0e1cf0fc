"""Which tools there are, by name."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from shepherd.messages import ToolSpec
from shepherd.tools.base import Tool

AnyTool: TypeAlias = Tool[Any]


class ToolRegistry:
    """Tools by name, in the order in which a model is offered them."""

    def __init__(self, tools: Iterable[AnyTool] = ()) -> None:
        self._tools: dict[str, AnyTool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: AnyTool) -> None:
        """Add a tool; raises ValueError if its name is taken."""
        if tool.name in self._tools:
            raise ValueError(f"two tools are named {tool.name}")
        self._tools[tool.name] = tool

    def get(self, name: str) -> AnyTool | None:
        """The tool of that name, None if there is none."""
        return self._tools.get(name)

    @property
    def names(self) -> list[str]:
        """All names in order."""
        return list(self._tools)

    def specs(self) -> list[ToolSpec]:
        """All tools as a model sees them, in order."""
        return [tool.spec() for tool in self._tools.values()]


def default_registry() -> ToolRegistry:
    """Shepherd's own tools."""
    from shepherd.tools.builtin import builtin_tools  # loads every family

    return ToolRegistry(builtin_tools())

"""The tools of plugins: they follow the same rules as others, and need approval by default."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from shepherd.plugins import Group, Plugins
from shepherd.tools.base import Access, AccessKind, AnyTool, Tool, ToolContext, ToolResult
from shepherd.tools.function import check_tool_name
from shepherd.tools.registry import ToolRegistry


class ExtensionTool(Tool[Any]):
    """A plugin's tool. A call touches the tool itself, and the targets that the plugin declares."""

    is_extension = True

    def __init__(self, tool: AnyTool) -> None:
        self._tool = tool
        self.name = check_tool_name(tool.name)
        if self.name.startswith("ask_"):
            raise TypeError(f"{self.name!r} can't be a tool's name: ask_NAME asks a provider")
        self.description = tool.description
        self.arguments = tool.arguments
        self.calls_models = tool.calls_models
        self.starts_programs = tool.starts_programs
        self.spec()  # raises the error of wrong arguments

    def accesses(self, arguments: Any, context: ToolContext) -> list[Access]:
        itself = Access(AccessKind.TOOL, self.name)
        return [*dict.fromkeys([itself, *self._tool.accesses(arguments, context)])]

    def preview(self, arguments: Any, context: ToolContext) -> str:
        return self._tool.preview(arguments, context)

    def start_directory(self, arguments: Any, context: ToolContext) -> Path:
        return self._tool.start_directory(arguments, context)

    def deadline(self, arguments: Any, context: ToolContext) -> float | None:
        return self._tool.deadline(arguments, context)

    async def run(self, arguments: Any, context: ToolContext) -> ToolResult:
        return await self._tool.run(arguments, context)


def add_extensions(
    registry: ToolRegistry, plugins: Plugins, disabled: Iterable[str], warn: Callable[[str], None]
) -> None:
    """Append the tools of plugins; `warn` receives a sentence for one that can't be added."""
    names = {*disabled}

    def add(loaded: object) -> None:
        tools = [ExtensionTool(tool) for tool in _tools(loaded)]
        for tool in tools:
            if tool.name not in names:
                registry.add(tool)

    plugins.use(Group.TOOLS, add, warn)


def _tools(loaded: object) -> Iterator[AnyTool]:
    """The tools of an entry point: a tool, a class of tools, or a function that returns some."""
    if not isinstance(loaded, Tool) and callable(loaded):
        loaded = loaded()
    if isinstance(loaded, Tool):
        yield cast(AnyTool, loaded)
        return
    if not isinstance(loaded, Iterable):
        raise TypeError(f"{loaded!r} is not a tool")
    for tool in cast(Iterable[object], loaded):
        if not isinstance(tool, Tool):
            raise TypeError(f"{tool!r} is not a tool")
        yield cast(AnyTool, tool)

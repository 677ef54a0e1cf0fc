"""The available tools by name."""

from collections.abc import Iterable, Iterator

from shepherd.messages import ToolSpec
from shepherd.own_programs import packaged_program
from shepherd.tools.environment import GetDate, GetEnvironmentVariable, GetTime
from shepherd.tools.files.edit import DeleteFile, EditFile, WriteFile
from shepherd.tools.files.read import ListDirectory, ReadFile
from shepherd.tools.search.glob import Glob
from shepherd.tools.search.grep import Grep
from shepherd.tools.shell.execute import CheckCommand, ExecuteCommand
from shepherd.tools.tool import TRAITS, AnyTool, Traits
from shepherd.tools.web.http import HttpGet, HttpRequest


class ToolRegistry:
    """Tools by name, in the order in which they are offered to a model.

    `version` differs after each change.
    """

    def __init__(self, tools: Iterable[AnyTool] = ()) -> None:
        self.version = 0  # counts the changes, so that prompts are made anew after one
        self._tools: dict[str, AnyTool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: AnyTool) -> None:
        """Add a tool; raises ValueError if the name is already in use."""
        if tool.name in self._tools:
            raise ValueError(f"two tools are named {tool.name}")
        self._tools[tool.name] = tool
        TRAITS.setdefault(tool.name, tool.traits)  # the class of some tools does not know the name
        self.version += 1

    def remove(self, name: str) -> None:
        """Remove a tool; raises KeyError if there is no tool of that name."""
        del self._tools[name]
        self.version += 1

    def __iter__(self) -> Iterator[AnyTool]:
        return iter([*self._tools.values()])  # a copy: tools come and go while it is read

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


def builtin_tools() -> list[AnyTool]:
    """A new instance of each built-in tool."""
    packaged_program("rg")  # looked up, and kept, before a model can change it
    return [
        ListDirectory(),
        ReadFile(),
        WriteFile(),
        EditFile(),
        DeleteFile(),
        Glob(),
        Grep(),
        ExecuteCommand(),
        CheckCommand(),
        HttpGet(),
        HttpRequest(),
        GetTime(),
        GetDate(),
        GetEnvironmentVariable(),
    ]


def default_registry() -> ToolRegistry:
    """A registry of all built-in tools."""
    return ToolRegistry(builtin_tools())


def traits_of(name: str) -> Traits:
    """The traits of a tool of this name; an unknown one has the defaults."""
    return TRAITS.get(name, Traits())

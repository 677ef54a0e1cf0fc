"""Shepherd's own tools, in the order in which they are offered to a model."""

from shepherd.tools.base import AnyTool
from shepherd.tools.environment import GetDate, GetEnvironmentVariable, GetTime
from shepherd.tools.files.edit import EditFile
from shepherd.tools.files.listing import ListDirectory
from shepherd.tools.files.read import ReadFile
from shepherd.tools.files.write import DeleteFile, WriteFile
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.search.glob import Glob
from shepherd.tools.search.grep import Grep
from shepherd.tools.shell.execute import CheckCommand, ExecuteCommand
from shepherd.tools.web.http import HttpGet, HttpRequest


def builtin_tools() -> list[AnyTool]:
    """A new instance of each built-in tool."""
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

"""Tools for the time, the date and environment variables."""

import os
import time
from typing import Annotated

from pydantic import Field

from shepherd.errors import ToolError
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult, Traits

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class VariableArguments(Arguments):
    """The name of a variable."""

    name: Annotated[str, Field(min_length=1)]


class GetEnvironmentVariable(Tool[VariableArguments]):
    """Returns the value of a variable; names that look like secrets need approval."""

    name = "get_environment_variable"
    description = "Environment variable."
    arguments = VariableArguments

    def accesses(self, arguments: VariableArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.ENVIRONMENT, arguments.name)]

    async def run(self, arguments: VariableArguments, context: ToolContext) -> ToolResult:
        """The value that a command would see; raises ToolError if it is not set."""
        value = (dict(os.environ) | context.environment).get(arguments.name)
        if value is None:
            raise ToolError(f"environment variable {arguments.name} is not set")
        return ToolResult(value)


class NoArguments(Arguments):
    """Arguments of a tool that takes none."""


class GetTime(Tool[NoArguments]):
    """`14:03:22 UTC`."""

    name = "get_time"
    traits = Traits(reads_only=True)
    description = "Local time."
    arguments = NoArguments

    def accesses(self, arguments: NoArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: NoArguments, context: ToolContext) -> ToolResult:
        return ToolResult(time.strftime("%H:%M:%S %Z").strip())


class GetDate(Tool[NoArguments]):
    """`2026-11-21 Saturday`; the weekday is English whatever the locale."""

    name = "get_date"
    traits = Traits(reads_only=True)
    description = "Date and weekday."
    arguments = NoArguments

    def accesses(self, arguments: NoArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: NoArguments, context: ToolContext) -> ToolResult:
        now = time.localtime()
        return ToolResult(f"{time.strftime('%Y-%m-%d', now)} {_WEEKDAYS[now.tm_wday]}")

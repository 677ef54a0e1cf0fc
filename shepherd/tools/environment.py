"""Environment variables; those that look like secrets ask first."""

import os
from typing import Annotated

from pydantic import Field

from shepherd.errors import ToolError
from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult


class VariableArguments(Arguments):
    """Which variable."""

    name: Annotated[str, Field(min_length=1)]


class GetEnvironmentVariable(Tool[VariableArguments]):
    """The value of a variable."""

    name = "get_environment_variable"
    description = "Environment variable."
    arguments = VariableArguments

    def accesses(self, arguments: VariableArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.ENVIRONMENT, arguments.name)]

    async def run(self, arguments: VariableArguments, context: ToolContext) -> ToolResult:
        value = (dict(os.environ) | context.environment).get(arguments.name)
        if value is None:
            raise ToolError(f"environment variable {arguments.name} is not set")
        return ToolResult(value)

"""A call that is ready to run, and the steps around it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shepherd.errors import ToolError
from shepherd.json_text import is_finite
from shepherd.messages import ToolCall
from shepherd.tools.base import Access, AnyTool, ToolContext, ToolResult
from shepherd.tools.confinement import Command
from shepherd.tools.deferred.signature import signature
from shepherd.tools.text import valid_json
from shepherd.validation import describe_problem

_MAX_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call with checked arguments and its accesses."""

    call: ToolCall
    tool: AnyTool
    arguments: Any
    context: ToolContext
    accesses: tuple[Access, ...]

    @property
    def command(self) -> Command:
        """The call as one that starts programs."""
        place = self.tool.start_directory(self.arguments, self.context)
        return Command(self.tool.name, self.accesses, place, self.context.on_event)


class CallStep(Protocol):
    """Work around each call of a conversation, such as keeping the files that it changes."""

    async def before(self, prepared: PreparedCall) -> None:
        """Act on an allowed call before it runs; ToolError refuses the call."""
        ...

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result to use, also after a failure; a cancelled call has none."""
        ...


def parse_arguments(tool: AnyTool, call: ToolCall) -> Any:
    """The arguments of a call, checked; raises ToolError with text for the model."""
    infinite = [name for name, value in call.arguments.items() if not is_finite(value)]
    if infinite:
        problem = f"{infinite[0]} has a number that is infinite, or too large"
        raise ToolError(f"bad arguments for {call.name}: {problem}")
    kind: type[BaseModel] = tool.arguments
    try:
        return kind.model_validate(valid_json(call.arguments))
    except ValidationError as error:
        problems = _sentence(error.errors(include_url=False), kind.model_fields)
        # the prompt may not list the tool
        usage = f"; it is {signature(tool.spec())}" if tool.is_extension else ""
        raise ToolError(f"bad arguments for {call.name}: {problems}{usage}") from error


def _sentence(details: list[ErrorDetails], names: Iterable[str]) -> str:
    problems: list[str] = []
    for detail in details:
        name = str(next(iter(detail["loc"]), ""))
        takes = ", ".join(names) or "nothing"
        text = describe_problem(detail, name, unknown=f"{name} is unknown; it takes {takes}")
        if text not in problems:
            problems.append(text)
    more = f"; {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return "; ".join(problems[:_MAX_PROBLEMS]) + more

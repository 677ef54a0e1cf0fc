"""Shepherd's own tools in the order in which a model is offered them."""

from shepherd.tools.clock import GetDate, GetTime
from shepherd.tools.environment import GetEnvironmentVariable
from shepherd.tools.registry import AnyTool


def builtin_tools() -> list[AnyTool]:
    """One of each."""
    return [GetTime(), GetDate(), GetEnvironmentVariable()]

"""The memory's tools: finding what left the conversation, and facts."""

from shepherd.memory import Memory, Place
from shepherd.tools.base import AnyTool
from shepherd.tools.memory.facts import ClearFact, GetFact, SetFact
from shepherd.tools.memory.search import SearchMemory

__all__ = ["ClearFact", "GetFact", "SearchMemory", "SetFact", "memory_tools"]


def memory_tools(memory: Memory, place: Place) -> list[AnyTool]:
    """One of each, over the memory of a conversation at `place`."""
    tools = (SearchMemory, SetFact, GetFact, ClearFact)
    return [tool(memory, place) for tool in tools]

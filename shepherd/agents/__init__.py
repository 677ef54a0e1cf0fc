"""Models that work for another model: each other provider becomes a tool, `ask_NAME`."""

from shepherd.agents.ask import Asking, AskProvider
from shepherd.agents.backends import DelegateBackends, tool_names

__all__ = ["AskProvider", "Asking", "DelegateBackends", "tool_names"]

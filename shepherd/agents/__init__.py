"""Models that work for another model: other providers as `ask_NAME`, sub-agents as `task`."""

from shepherd.agents.ask import Asking, AskProvider, DelegateBackends, tool_names
from shepherd.agents.task import TASK, RunTask, Tasks

__all__ = ["TASK", "AskProvider", "Asking", "DelegateBackends", "RunTask", "Tasks", "tool_names"]

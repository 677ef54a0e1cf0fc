"""The memory in a frontend: whether there is one, and whether the model is offered its tools."""

from shepherd.backends.base import ModelInfo
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.notices import Notices
from shepherd.memory import Memory, Place
from shepherd.memory.memory import MIB
from shepherd.memory.text import OWN_TOOLS
from shepherd.messages import ToolSpec
from shepherd.tools.memory import memory_tools
from shepherd.tools.registry import ToolRegistry


def build_memory(config: Config, paths: Paths, notices: Notices) -> Memory | None:
    """The user's memory, unless the settings want nothing kept; no file is touched yet."""
    if not (config.memory.enabled and config.terminal.save_sessions):
        return None
    return Memory(paths.memory_file, notices.tell, max_bytes=config.memory.max_mib * MIB)


def add_memory_tools(
    registry: ToolRegistry, config: Config, memory: Memory | None, place: Place
) -> None:
    """Put the memory's tools behind the others, where tools are wanted at all."""
    if memory is None or not config.model.tools or config.memory.tools == "off":
        return
    for tool in memory_tools(memory, place):
        if tool.name not in config.tools.disabled:
            registry.add(tool)


def offered_tools(
    registry: ToolRegistry, config: Config, model: ModelInfo | None
) -> list[ToolSpec]:
    """The tools that `model` is offered; None is a model that is not loaded yet.

    Models that know the basic ones only can't ask others; with `memory.tools` on `auto` the
    memory's are not for them either.
    """
    if model is not None and not model.basic_tools_only:
        return registry.specs()
    remembers = config.memory.tools == "on"
    basic = (tool for tool in registry if not tool.asks_models)
    return [tool.spec() for tool in basic if remembers or tool.name not in OWN_TOOLS]

"""The memory in a frontend: whether there is one, and whether the model is offered its tools."""

from shepherd.backends.base import ModelInfo
from shepherd.cli.notices import Notices
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
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

    With `memory.tools` on `auto` the memory's are not for models that know the basic ones only.
    """
    knows_more = model is not None and not model.basic_tools_only
    if knows_more or config.memory.tools == "on":
        return registry.specs()
    return [spec for spec in registry.specs() if spec.name not in OWN_TOOLS]

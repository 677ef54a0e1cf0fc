"""Which tools a model is offered."""

from pathlib import Path

from shepherd.backends.base import ModelInfo
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.load import load_config
from shepherd.config.settings import Config
from shepherd.conversation.toolbox import ToolOffer, build_registry, offered_tools
from shepherd.models import BUILTIN_NAME, BUILTIN_TOOLS, builtin_model
from shepherd.tools.access import Access
from shepherd.tools.plan import PLAN_TOOLS
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult


class Added(Tool[Arguments]):
    """A tool that came later, from a plugin or a server."""

    name = "search_tickets"
    description = "Search."
    arguments = Arguments

    def accesses(self, arguments: Arguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        return ToolResult("nothing")


def settings(directory: Path) -> Config:
    return load_config(directory, {"HOME": str(directory)})


def offered(registry: ToolRegistry, config: Config, model: ModelInfo | None) -> set[str]:
    return {spec.name for spec in offered_tools(registry, config, model)}


async def test_an_added_tool_never_reaches_the_built_in_model(tmp_path: Path) -> None:
    config = settings(tmp_path)
    registry = build_registry(config)
    registry.add(Added())
    section = LlamaCppSection(threads=1, context_size=512)
    backend = await LlamaCppBackend.load(builtin_model(), section, name=BUILTIN_NAME)
    try:
        assert offered(registry, config, backend.info) == BUILTIN_TOOLS
    finally:
        await backend.aclose()
    assert offered(registry, config, None) == BUILTIN_TOOLS
    other = ModelInfo("other", "scripted", 0)
    assert offered(registry, config, other) == {
        *BUILTIN_TOOLS,
        *PLAN_TOOLS,
        "check_command",
        "search_tickets",
    }


def test_the_built_in_model_sees_its_tools_as_in_its_training(tmp_path: Path) -> None:
    config = settings(tmp_path)
    specs = offered_tools(build_registry(config), config, None)
    [command] = [spec for spec in specs if spec.name == "execute_command"]
    assert list(command.parameters["properties"]) == ["command", "cwd", "timeout"]
    assert command.parameters["required"] == ["command"]


def test_a_model_gets_the_tools_that_its_info_names(tmp_path: Path) -> None:
    config = settings(tmp_path)
    model = ModelInfo("own", "scripted", 0, trained_tools=frozenset({"read_file", "unknown"}))
    assert offered(build_registry(config), config, model) == {"read_file"}


def test_an_offer_is_kept_until_the_tools_change(tmp_path: Path) -> None:
    config = settings(tmp_path)
    registry = build_registry(config)
    offer, model = ToolOffer(registry, config), ModelInfo("other", "scripted", 0)
    before = offer(model)
    assert offer(model) is before
    removed = before[0].name
    registry.remove(removed)
    assert offer(model) == [spec for spec in before if spec.name != removed]

"""OpenAI's agents: a function tool and a handoff, over both API shapes."""

from typing import Any

import pytest

from tests.clients.assistant import SUNNY, WEATHER
from tests.clients.page import example
from tests.clients.serving import Server

agents: Any = pytest.importorskip("agents", reason="openai-agents is not installed")

APIS = [
    pytest.param("Chat", marks=pytest.mark.client("openai-agents", "Chat")),
    pytest.param("Responses", marks=pytest.mark.client("openai-agents", "Responses")),
]


def weather(place: str) -> str:
    """The weather of a place."""
    return SUNNY if place == "Bern" else "unknown"


@pytest.mark.parametrize("api", APIS)
async def test_a_tool_and_a_handoff(server: Server, api: str) -> None:
    model: Any = example("openai-agents", server.url)["models"][api]
    tool = agents.function_tool(weather)
    expert = agents.Agent(name="Expert", model=model, tools=[tool])
    result = await agents.Runner.run(expert, "How is the weather?")
    assert (result.final_output, result.last_agent.name) == (WEATHER, "Expert")
    first = agents.Agent(name="First", model=model, handoffs=[expert])
    result = await agents.Runner.run(first, "How is the weather?")
    assert (result.final_output, result.last_agent.name) == (WEATHER, "Expert")
    streamed = agents.Runner.run_streamed(first, "How is the weather?")
    kinds = [event.type async for event in streamed.stream_events()]
    assert (streamed.final_output, streamed.last_agent.name) == (WEATHER, "Expert")
    assert "raw_response_event" in kinds

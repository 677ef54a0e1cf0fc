"""pydantic-ai: tools, structured output and streams over each API."""

from typing import Any

import pytest
from pydantic import BaseModel

from tests.clients.assistant import HELLO, SUNNY, WEATHER
from tests.clients.page import example
from tests.clients.serving import Server

ai: Any = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")

APIS = [
    pytest.param("Chat", marks=pytest.mark.client("pydantic-ai", "Chat")),
    pytest.param("Responses", marks=pytest.mark.client("pydantic-ai", "Responses")),
    pytest.param("Messages", marks=pytest.mark.client("pydantic-ai", "Messages")),
    pytest.param("Gemini", marks=pytest.mark.client("pydantic-ai", "Gemini")),
]


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


def weather(place: str) -> str:
    """The weather of a place."""
    return SUNNY if place == "Bern" else "unknown"


@pytest.mark.parametrize("api", APIS)
async def test_tools_and_structured_output(server: Server, api: str) -> None:
    model: Any = example("pydantic-ai", server.url)["models"][api]
    assert (await ai.Agent(model).run("Hi")).output == HELLO
    result = await ai.Agent(model, tools=[weather]).run("How is the weather?")
    assert result.output == WEATHER
    assert result.usage.requests == 2
    ada = Person(name="Ada", age=36)
    assert (await ai.Agent(model, output_type=Person).run("Who?")).output == ada
    if api != "Messages":  # pydantic-ai offers it only with names of Anthropic's own models
        assert (
            await ai.Agent(model, output_type=ai.NativeOutput(Person)).run("Who?")
        ).output == ada
    async with ai.Agent(model, tools=[weather]).run_stream("How is the weather?") as stream:
        assert await stream.get_output() == WEATHER

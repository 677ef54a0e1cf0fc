"""Frameworks for Python: an answer, and a tool that they run, with the model of the page."""

import importlib
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.assistant import HELLO, SUNNY, WEATHER
from tests.clients.page import example
from tests.clients.serving import Server

Asks = Callable[[Any, Any], Any]
QUESTION = "How is the weather?"


def weather(place: str) -> str:
    """The weather of a place.

    Args:
        place: The name of the place.
    """
    return SUNNY if place == "Bern" else "unknown"


def agno(agents: Any, model: Any) -> list[str]:
    plain = agents.Agent(model=model, telemetry=False)
    agent = agents.Agent(model=model, telemetry=False, tools=[weather])
    return [plain.run("Hi").content, agent.run(QUESTION).content]


async def autogen(agents: Any, model: Any) -> list[str]:
    plain = agents.AssistantAgent("plain", model)
    agent = agents.AssistantAgent("agent", model, tools=[weather], reflect_on_tool_use=True)
    runs = [await plain.run(task="Hi"), await agent.run(task=QUESTION)]
    return [run.messages[-1].content for run in runs]


def haystack(components: Any, model: Any) -> list[str]:
    message = importlib.import_module("haystack.dataclasses").ChatMessage.from_user
    tools = [importlib.import_module("haystack.tools").create_tool_from_function(weather)]
    agent = components.Agent(chat_generator=model, tools=tools)
    hello = model.run([message("Hi")])["replies"][0]
    return [hello.text, agent.run(messages=[message(QUESTION)])["last_message"].text]


def langchain(_: Any, model: Any) -> list[str]:
    [call] = model.bind_tools([weather]).invoke(QUESTION).tool_calls
    hello = "".join(chunk.text for chunk in model.stream("Hi"))
    return [hello, f"It is {weather(**call['args'])}."]


def llama_index(tools: Any, model: Any) -> list[str]:
    called = model.predict_and_call([tools.FunctionTool.from_defaults(weather)], QUESTION)
    return [model.complete("Hi").text, f"It is {called.response}."]


def smolagents(package: Any, model: Any) -> list[str]:
    messages = [{"role": "user", "content": QUESTION}]
    answer = model.generate(messages, tools_to_call_from=[package.tool(weather)])
    arguments = json.loads(answer.tool_calls[0].function.arguments)
    return [model.generate(messages).content, f"It is {weather(**arguments)}."]


def strands(package: Any, model: Any) -> list[str]:
    plain = package.Agent(model, callback_handler=None)
    agent = package.Agent(model, tools=[package.tool(weather)], callback_handler=None)
    return [str(plain("Hi")).strip(), str(agent(QUESTION)).strip()]


USES = [
    pytest.param(agno, "agno.agent", marks=pytest.mark.client("agno", "Chat")),
    pytest.param(autogen, "autogen_agentchat.agents", marks=pytest.mark.client("autogen", "Chat")),
    pytest.param(
        haystack, "haystack.components.agents", marks=pytest.mark.client("haystack", "Chat")
    ),
    pytest.param(
        langchain,
        "langchain_google_genai",
        marks=pytest.mark.client("langchain-google-genai", "Gemini"),
    ),
    pytest.param(
        langchain, "langchain_ollama", marks=pytest.mark.client("langchain-ollama", "Ollama")
    ),
    pytest.param(
        llama_index, "llama_index.core.tools", marks=pytest.mark.client("llama-index", "Chat")
    ),
    pytest.param(smolagents, "smolagents", marks=pytest.mark.client("smolagents", "Chat")),
    pytest.param(strands, "strands", marks=pytest.mark.client("strands", "Chat")),
    pytest.param(strands, "strands", marks=pytest.mark.client("strands", "Messages")),
]


@pytest.mark.parametrize(("ask", "module"), USES)
async def test_an_answer_and_a_tool(
    server: Server, request: pytest.FixtureRequest, ask: Asks, module: str
) -> None:
    package: Any = pytest.importorskip(module, reason=f"{module} is not installed")
    mark = request.node.get_closest_marker("client")
    assert mark is not None
    client, api = mark.args
    names = example(client, server.url)
    answers = ask(package, names.get("model") or names["models"][api])
    if inspect.isawaitable(answers):
        answers = await answers
    assert answers == [HELLO, WEATHER]

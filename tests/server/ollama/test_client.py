"""Ollama's own client, synchronous and asynchronous."""

from collections.abc import Iterator
from typing import Any

import ollama
import pytest

from shepherd.messages import Message, Role
from tests.pictures import picture
from tests.server.harness import RunningServer
from tests.server.held import RecordingBackend
from tests.server.ollama.harness import HI, client_of, joined, recording

MARKDOWN = "Hello **you**\n```py\nx = 1\n```\nbye"
ANSWER = r"""
chunk: 4
think: Let me see.
text: "Hello **you**\n```py\nx = 1\n```\nbye"
"""
CALLS = """
think: I need the time.
text: Looking.
call: get_time {"zone": "ä"}
call: get_date
---
text: It is noon.
"""
Server = RunningServer[RecordingBackend]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with recording(ANSWER) as running:
        yield running


def measures(answer: ollama.ChatResponse | ollama.GenerateResponse) -> tuple[Any, ...]:
    """What two answers to one request have in common."""
    assert answer.total_duration is not None
    assert answer.total_duration >= (answer.eval_duration or 0) > 0
    return (answer.done, answer.done_reason, answer.prompt_eval_count, answer.eval_count)


def test_an_answer_and_its_stream_are_the_same(server: Server) -> None:
    with client_of(server) as client:
        whole = client.chat(model="gpt-oss:20b", messages=HI)
        chunks = list(client.chat(model="gpt-oss:20b", messages=HI, stream=True))
    assert whole.message.content == joined(chunks) == MARKDOWN
    assert {chunk.model for chunk in [whole, *chunks]} == {"gpt-oss:20b"}
    assert {chunk.message.role for chunk in [whole, *chunks]} == {"assistant"}
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.eval_count for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert measures(whole) == measures(chunks[-1]) == (True, "stop", 5, whole.eval_count)
    assert whole.eval_count > 0
    assert whole.message.thinking is None


def test_a_generated_answer_and_its_stream_are_the_same(server: Server) -> None:
    with client_of(server) as client:
        whole = client.generate(model="m", prompt="hi", system="Be brief.")
        chunks = list(client.generate(model="m", prompt="hi", system="Be brief.", stream=True))
    assert whole.response == "".join(chunk.response for chunk in chunks) == MARKDOWN
    assert measures(whole) == measures(chunks[-1])
    session = server.backend.sessions[-1]
    assert (session.system_message, session.messages) == ("Be brief.", [Message.user("hi")])


async def test_the_asynchronous_client(server: Server) -> None:
    client: Any = ollama.AsyncClient(host=server.url)
    async with client:
        whole = await client.chat(model="m", messages=HI)
        chunks = [c async for c in await client.chat(model="m", messages=HI, stream=True)]
        answer = await client.generate(model="m", prompt="hi")
        listed = await client.list()
    assert whole.message.content == joined(chunks) == answer.response == MARKDOWN
    assert [model.model for model in listed.models] == ["script"]


@pytest.mark.parametrize("think", [True, "low", "high"])
def test_thinking_is_shown_when_it_is_requested(server: Server, think: Any) -> None:
    with client_of(server) as client:
        whole = client.chat(model="m", messages=HI, think=think)
        chunks = list(client.chat(model="m", messages=HI, think=think, stream=True))
        answer = client.generate(model="m", prompt="hi", think=think)
    assert whole.message.thinking == answer.thinking == "Let me see."
    assert "".join(chunk.message.thinking or "" for chunk in chunks) == "Let me see."
    assert joined(chunks) == MARKDOWN
    assert server.backend.sessions[-1].thinking


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_calls_and_their_results_come_back(how: str) -> None:
    def get_time(zone: str) -> str:
        """The time in a zone.

        Args:
            zone: a name
        """
        return f"noon in {zone}"

    def get_date() -> str:
        """The date of today."""
        return "today"

    options: Any = {"model": "m", "tools": [get_time, get_date], "think": True}
    history: list[Any] = [*HI]
    calls: list[Any] = []
    with recording(CALLS) as server, client_of(server) as client:
        if how == "streamed":
            chunks: list[Any] = list(client.chat(messages=history, stream=True, **options))
            calls = [call for c in chunks for call in c.message.tool_calls or ()]
            thinking = "".join(c.message.thinking or "" for c in chunks)
            text = joined(chunks)
            history.append(
                {
                    "role": "assistant",
                    "content": text,
                    "thinking": thinking,
                    "tool_calls": [call.model_dump() for call in calls],
                }
            )
        else:
            message = client.chat(messages=history, **options).message
            calls = message.tool_calls
            history.append(message)
        tools = {"get_time": get_time, "get_date": get_date}
        for call in calls:
            result = tools[call.function.name](**call.function.arguments)
            history.append({"role": "tool", "tool_name": call.function.name, "content": result})
        last = client.chat(messages=history, **options)
    assert last.message.content == "It is noon."
    first, second = server.backend.sessions
    assert [tool.name for tool in first.tools] == ["get_time", "get_date"]
    assert first.tools[0].description == "The time in a zone."
    user, answer, time, date = second.messages
    assert user == Message.user("hi")
    assert (answer.content, answer.reasoning) == ("Looking.", "I need the time.")
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("get_time", {"zone": "ä"}),
        ("get_date", {}),
    ]
    ids = [call.id for call in answer.tool_calls]
    assert [(m.role, m.name, m.tool_call_id) for m in (time, date)] == [
        (Role.TOOL, "get_time", ids[0]),
        (Role.TOOL, "get_date", ids[1]),
    ]
    assert (time.content, date.content) == ("noon in ä", "today")


def test_images_reach_a_model_that_sees() -> None:
    photo = picture("", 64, 48)
    asked = [{"role": "user", "content": "What is this?", "images": [photo.data]}]
    with recording("vision: yes\ntext: a cat") as server, client_of(server) as client:
        client.chat(model="m", messages=asked)
        client.generate(model="m", prompt="What is this?", images=[photo.base64])
        shown = client.show("script")
    expected = Message.user("What is this?", (photo,))
    assert [session.messages for session in server.backend.sessions] == [[expected], [expected]]
    assert "vision" in shown.capabilities


def test_an_error_ends_a_stream() -> None:
    with recording("text: one\nerror: upstream is gone") as server, client_of(server) as client:
        stream = client.chat(model="m", messages=HI, stream=True)
        assert next(stream).message.content == "one"
        with pytest.raises(ollama.ResponseError, match="upstream is gone"):
            list(stream)


def test_models_are_listed_and_shown(server: Server) -> None:
    with client_of(server) as client:
        (listed,) = client.list().models
        (running,) = client.ps().models
        shown = client.show(f"{listed.model}:latest")
        with pytest.raises(ollama.ResponseError, match="model 'other' not found") as caught:
            client.show("other")
    assert caught.value.status_code == 404
    assert listed.model == running.model == "script"
    assert len(listed.digest) == 64
    assert running.context_length == 32_768
    assert shown.modelinfo["shepherd.context_length"] == 32_768
    assert shown.capabilities == ["completion", "tools", "thinking"]


def test_without_a_prompt_the_model_is_only_loaded(server: Server) -> None:
    before = len(server.backend.sessions)
    with client_of(server) as client:
        assert client.generate(model="m").done_reason == "load"
        assert client.chat(model="m", keep_alive="5m").done_reason == "load"
        assert client.chat(model="m", keep_alive=0).done_reason == "unload"
        assert [part.done for part in client.generate(model="m", stream=True)] == [True]
    assert len(server.backend.sessions) == before


def test_what_changes_models_is_refused(server: Server) -> None:
    def failure(work: Any, *arguments: Any, **options: Any) -> int:
        with pytest.raises(ollama.ResponseError, match="is not served") as caught:
            list(work(*arguments, **options))
        return caught.value.status_code

    with client_of(server) as client:
        assert failure(client.push, "x") == 400
        assert failure(client.create, "x", from_="y") == 400
        assert failure(client.copy, "x", "y") == 400
        assert failure(client.delete, "x") == 400

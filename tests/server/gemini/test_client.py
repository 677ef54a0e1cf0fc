"""Google's own client; it refuses every field that its types don't have."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.genai import errors, types

from shepherd.messages import Message
from tests.pictures import picture
from tests.server.gemini.harness import ask, google, recording, stream, text_of
from tests.server.harness import RunningServer
from tests.server.held import RecordingBackend

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


def parts_of(answer: types.GenerateContentResponse) -> list[types.Part]:
    """The parts of the only candidate."""
    (candidate,) = answer.candidates or []
    assert candidate.content is not None
    assert candidate.content.role == "model"
    return candidate.content.parts or []


@pytest.mark.parametrize("version", ["", "v1", "v1beta"])
def test_an_answer_and_its_stream_are_the_same(server: Server, version: str) -> None:
    with google(server, version) as client:
        whole = ask(client)
        chunks = list(stream(client))
    assert whole.text == text_of(chunks) == MARKDOWN
    assert whole.model_version == "script"
    assert {(c.model_version, c.response_id) for c in chunks} == {("script", chunks[0].response_id)}
    assert whole.response_id != chunks[0].response_id
    reasons = [c.finish_reason for chunk in chunks for c in chunk.candidates or []]
    assert reasons == [None] * (len(chunks) - 1) + [types.FinishReason.STOP]
    assert [c.usage_metadata for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage_metadata == whole.usage_metadata
    usage = whole.usage_metadata
    assert usage is not None
    counts = (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count)
    assert sum(count or 0 for count in counts) == usage.total_token_count
    assert all(counts)
    assert usage.cached_content_token_count is None


async def test_the_asynchronous_client(server: Server) -> None:
    with google(server) as client:
        models: Any = client.aio.models
        whole = await models.generate_content(model="m", contents="hi")
        events = await models.generate_content_stream(model="m", contents="hi")
        chunks = [event async for event in events]
        await client.aio.aclose()
    assert whole.text == text_of(chunks) == MARKDOWN


@pytest.mark.parametrize(
    "config",
    [
        {"include_thoughts": True},
        {"include_thoughts": True, "thinking_budget": -1},
        {"include_thoughts": True, "thinking_level": "LOW"},
    ],
)
def test_thoughts_are_shown_when_they_are_requested(server: Server, config: Any) -> None:
    with google(server) as client:
        whole = ask(client, thinking_config=config)
        chunks = list(stream(client, thinking_config=config))
    first, second = parts_of(whole)
    assert (first.text, first.thought, second.text) == ("Let me see.", True, MARKDOWN)
    thoughts = [p.text or "" for chunk in chunks for p in parts_of(chunk) if p.thought]
    assert "".join(thoughts) == "Let me see."
    assert text_of(chunks) == MARKDOWN
    assert server.backend.sessions[-1].thinking


@pytest.mark.parametrize("config", [{"thinking_budget": 0, "include_thoughts": True}, {}])
def test_without_thinking_no_thought_is_shown(server: Server, config: Any) -> None:
    with google(server) as client:
        whole = ask(client, thinking_config=config)
    assert [part.thought for part in parts_of(whole)] == [None]
    assert not server.backend.sessions[-1].thinking


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_calls_and_their_results_come_back_exactly(how: str) -> None:
    """The chat of the client keeps each event of a stream as a content of its own."""

    def get_time(zone: str) -> str:
        """The time in a zone."""
        return f"noon in {zone}"

    def get_date() -> dict[str, str]:
        """The date of today."""
        return {"day": "1", "month": "2"}

    with recording(CALLS) as server, google(server) as client:
        chat: Any = client.chats.create(
            model="m", config=types.GenerateContentConfig(tools=[get_time, get_date])
        )
        if how == "streamed":
            text = text_of(list(chat.send_message_stream("hi")))
        else:
            text = chat.send_message("hi").text or ""
    assert text.endswith("It is noon.")
    first, second = server.backend.sessions
    assert [tool.name for tool in first.tools] == ["get_time", "get_date"]
    assert first.tools[0].parameters == {
        "type": "object",
        "properties": {"zone": {"type": "string"}},
        "required": ["zone"],
    }
    user, answer, time, date = second.messages
    assert user == Message.user("hi")
    assert (answer.content, answer.reasoning) == ("Looking.", "I need the time.")
    assert [(c.id, c.name, c.arguments) for c in answer.tool_calls] == [
        ("call_1_0", "get_time", {"zone": "ä"}),
        ("call_1_1", "get_date", {}),
    ]
    assert (time.tool_call_id, time.name, time.content) == ("call_1_0", "get_time", "noon in ä")
    assert (date.tool_call_id, date.name) == ("call_1_1", "get_date")
    assert date.content == '{"day": "1", "month": "2"}'


def test_several_candidates(server: Server) -> None:
    with google(server) as client:
        whole = ask(client, candidate_count=2)
        chunks = list(stream(client, candidate_count=2))
    candidates = whole.candidates or []
    assert [candidate.index for candidate in candidates] == [0, 1]
    texts = ["", ""]
    for chunk in chunks:
        for candidate in chunk.candidates or []:
            for part in (candidate.content and candidate.content.parts) or []:
                texts[candidate.index or 0] += part.text or ""
    assert texts == [MARKDOWN, MARKDOWN]
    assert whole.usage_metadata is not None
    assert chunks[-1].usage_metadata == whole.usage_metadata


def test_tokens_are_counted_as_in_the_answer(server: Server) -> None:
    with google(server) as client:
        models: Any = client.models
        counted = models.count_tokens(model="m", contents="how many tokens")
        answer = ask(client, "how many tokens")
    assert answer.usage_metadata is not None
    assert counted.total_tokens == answer.usage_metadata.prompt_token_count


@pytest.mark.parametrize("version", ["", "v1beta"])
def test_models_are_listed(server: Server, version: str) -> None:
    with google(server, version) as client:
        (model,) = client.models.list()
        same = client.models.get(model="script")
        assert (model.name, model.input_token_limit) == ("models/script", 32_768)
        assert same.name == model.name
        assert same.thinking
        with pytest.raises(errors.ClientError) as caught:
            client.models.get(model="other")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


def test_images_reach_a_model_that_sees() -> None:
    photo = picture("", 64, 48)
    with recording("vision: yes\ntext: a cat") as server, google(server) as client:
        image = types.Part.from_bytes(data=photo.data, mime_type="image/png")
        ask(client, [image, "What is this?"])
    (message,) = server.backend.sessions[0].messages
    assert (message.content, message.images) == ("What is this?", (photo,))


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_a_conversation_that_is_too_long_is_refused(how: str) -> None:
    script = "context: 8\ntext: hi"
    with recording(script) as server, google(server) as client:
        question = "one two three four five"
        with pytest.raises(errors.ClientError, match=r"token count \(\d+\) exceeds") as caught:
            ask(client, question) if how == "whole" else list(stream(client, question))
    assert caught.value.code == 400


def test_an_error_ends_a_stream() -> None:
    with recording("text: one\nerror: upstream is gone") as server, google(server) as client:
        events = stream(client)
        assert text_of([next(events)]) == "one"
        with pytest.raises(errors.ServerError, match="upstream is gone") as caught:
            list(events)
    assert caught.value.status == "INTERNAL"

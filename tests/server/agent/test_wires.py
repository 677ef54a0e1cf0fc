"""The agent answers on every API, and its hidden rounds continue in the next request."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shepherd.config.section import ShowToolCalls
from tests.server.agent.support import READ, Recorded, agent_of, directory, runner, serve
from tests.server.anthropic.support import ask as ask_anthropic
from tests.server.anthropic.support import client_of as anthropic_client
from tests.server.anthropic.support import stream as stream_anthropic
from tests.server.gemini.harness import ask as ask_google
from tests.server.gemini.harness import google, text_of
from tests.server.gemini.harness import stream as stream_google
from tests.server.harness import ask, joined, stream
from tests.server.ollama.harness import client_of as ollama_client
from tests.server.openai_responses.harness import created, streamed

ANSWER = "I look.\n\nThe milk."
NEXT = "and then?"
SCRIPT = f"""
think: a note will say
chunk: 3
text: I look.
{READ}
---
think: milk it is
chunk: 2
text: The milk.
"""


@pytest.fixture(params=[ShowToolCalls.OFF, ShowToolCalls.REASONING], ids=str)
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Recorded]:
    agent = agent_of(runner(directory(tmp_path)), request.param)
    with serve(SCRIPT, agent) as running:
        yield running


def check_prompts(server: Recorded) -> None:
    """The second request's prompt continues the first one's last."""
    prompts = server.backend.prompts
    assert [prompt.roles for prompt in prompts] == ["u", "uat", "uatau", "uatauat"]
    assert prompts[2].messages[:3] == prompts[1].messages
    assert prompts[2].messages[3].content == "The milk."
    assert prompts[2].messages[4].content == NEXT


@pytest.mark.parametrize("thinks", [False, True])
def test_anthropic(server: Recorded, *, thinks: bool) -> None:
    options: dict[str, Any] = {"max_tokens": 5000}
    if thinks:
        options["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    hi = {"role": "user", "content": "hi"}
    with anthropic_client(server) as client:
        first = stream_anthropic(client, messages=[hi], **options)
        history = [
            hi,
            {"role": "assistant", "content": [block.to_dict() for block in first.content]},
            {"role": "user", "content": NEXT},
        ]
        second = ask_anthropic(client, messages=history, **options)
    for answer in (first, second):
        texts = "".join(block.text for block in answer.content if block.type == "text")
        assert (texts, answer.stop_reason) == (ANSWER, "end_turn")
        assert any(block.type == "thinking" for block in answer.content) is thinks
        assert answer.usage.output_tokens > len(ANSWER.split())
    check_prompts(server)


def test_chat_streams(server: Recorded) -> None:
    hi = {"role": "user", "content": "hi"}
    with server.client() as client:
        text = joined(stream(client, messages=[hi]))
        history = [hi, {"role": "assistant", "content": text}, {"role": "user", "content": NEXT}]
        assert ask(client, messages=history).choices[0].message.content == text == ANSWER
    check_prompts(server)


@pytest.mark.parametrize("effort", ["none", "high"])
def test_responses(server: Recorded, effort: str) -> None:
    options = {"reasoning": {"effort": effort}, "include": ["reasoning.encrypted_content"]}
    events = streamed(server, **options)
    first = events[-1]["response"]
    assert first["status"] == "completed"
    hi = {"role": "user", "content": "hi"}
    items = [hi, *first["output"], {"role": "user", "content": NEXT}]
    second = created(server, input=items, **options)
    for answer in (first, second):
        messages = [item for item in answer["output"] if item["type"] == "message"]
        assert "".join(m["content"][0]["text"] for m in messages) == ANSWER
    check_prompts(server)


def test_a_response_is_continued_by_its_id(server: Recorded) -> None:
    first = created(server)
    created(server, input=NEXT, previous_response_id=first["id"])
    check_prompts(server)


def test_google(server: Recorded) -> None:
    thinking = {"include_thoughts": True}
    with google(server) as client:
        chunks = list(stream_google(client, thinking_config=thinking))
        text = text_of(chunks)
        parts = [
            part
            for chunk in chunks
            for candidate in chunk.candidates or []
            for part in (candidate.content and candidate.content.parts) or []
        ]
        contents: list[Any] = [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [part.model_dump(exclude_none=True) for part in parts]},
            {"role": "user", "parts": [{"text": NEXT}]},
        ]
        second = ask_google(client, contents=contents, thinking_config=thinking)
    assert text == second.text == ANSWER
    check_prompts(server)


def test_ollama(server: Recorded) -> None:
    hi = {"role": "user", "content": "hi"}
    with ollama_client(server) as client:
        first = client.chat(model="m", messages=[hi])
        history = [hi, first.message.model_dump(), {"role": "user", "content": NEXT}]
        chunks = list(client.chat(model="m", messages=history, stream=True))
    assert "".join(chunk.message.content or "" for chunk in chunks) == ANSWER
    check_prompts(server)

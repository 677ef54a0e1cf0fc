"""`/v1/responses/compact`: a conversation becomes one signed item."""

from typing import Any

import httpx
from msgspec.structs import replace

from shepherd.backends.base import ModelInfo
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from tests.server.harness import RunningServer, scripted
from tests.server.openai_responses.harness import created, post

HISTORY = [
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": "My name is Alice."},
    {"role": "assistant", "content": "Hello Alice!"},
]


class Trained(ScriptedBackend):
    """A model that was trained on a few tasks."""

    @property
    def info(self) -> ModelInfo:
        return replace(super().info, trained_tools=frozenset({"read_file"}))


def compact(server: RunningServer[Any], **body: Any) -> httpx.Response:
    return post(server, {"model": "default"} | body, "/compact")


def test_a_compaction_names_its_model() -> None:
    with scripted("error: not asked") as server:
        answer = compact(server, model=None)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "model"


def test_a_summary_takes_the_place_of_the_conversation() -> None:
    with scripted("text: The user is Alice.\n---\ntext: You are Alice.") as server:
        with server.client() as client:
            short = client.responses.compact(model="gpt-5", input=HISTORY)  # type: ignore[arg-type]  # plain dicts
        assert [item.type for item in short.output] == ["message", "compaction"]
        assert short.object == "response.compaction"
        assert short.usage.total_tokens == short.usage.input_tokens + short.usage.output_tokens > 0
        items = [item.model_dump(exclude_none=True, warnings=False) for item in short.output]
        again = created(server, input=[*items, {"role": "user", "content": "Who am I?"}])
        assert again["output"][0]["content"][0]["text"] == "You are Alice."
        # the instructions are in the system message
        assert server.backend.requests == [3, 2]


def test_a_stored_conversation_is_shortened() -> None:
    with scripted("text: Hello Alice!\n---\ntext: Alice said hello.") as server:
        first = created(server, input=HISTORY[1]["content"])
        answer = compact(server, input=None, previous_response_id=first["id"])
        assert answer.status_code == 200, answer.text
        assert [item["type"] for item in answer.json()["output"]] == ["compaction"]


def test_a_changed_summary_is_refused() -> None:
    with scripted("text: S") as server:
        output = compact(server, input=HISTORY).json()["output"]
        word = output[1]["encrypted_content"]
        output[1]["encrypted_content"] = word[:-4] + ("AAAA" if word[-4:] != "AAAA" else "BBBB")
        answer = post(server, {"input": output})
        assert answer.json()["error"]["code"] == "invalid_encrypted_content"


def test_a_model_that_cannot_summarise_gives_a_digest() -> None:
    with RunningServer(Trained(parse_script("error: not asked"))) as server:
        answer = compact(server, input=HISTORY).json()
        assert answer["usage"]["total_tokens"] == 0
        assert not server.backend.requests


def test_a_model_that_writes_nothing_is_an_error() -> None:
    with scripted("text:") as server:
        assert compact(server, input=HISTORY).status_code == 502

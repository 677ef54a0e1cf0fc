"""What llama.cpp's clients send to the chat completions API, and look for in its answers."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import Sampling
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, scripted
from tests.server.held import HeldBackend

Engine = RunningServer[LlamaCppBackend]
GREEDY = Sampling(temperature=0.0)
PREFIX = "/chat/completions"


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    async def load() -> LlamaCppBackend:
        section = LlamaCppSection(threads=1, context_size=2048)
        return await LlamaCppBackend.load(builtin_model(), section, GREEDY, name=BUILTIN_NAME)

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), loop=loop) as running:
        yield running


def post(server: RunningServer[Any], path: str = CHAT, **fields: Any) -> httpx.Response:
    body = {"messages": HI, "max_tokens": 12} | fields
    return httpx.post(server.url + path, json=body, timeout=PATIENCE)


def events(server: RunningServer[Any], **fields: Any) -> list[dict[str, Any]]:
    response = post(server, stream=True, **fields)
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines if not line.startswith(":")]


def refusal(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def test_the_answer_has_its_timings_and_a_fingerprint(server: Engine) -> None:
    whole = post(server, model="any/name").json()
    chunks = events(server, model="any/name")
    assert whole["model"] == "any/name"
    assert {chunk["model"] for chunk in chunks} == {"any/name"}
    assert whole["system_fingerprint"].startswith("b")
    assert {chunk["system_fingerprint"] for chunk in chunks} == {whole["system_fingerprint"]}
    assert post(server).json()["model"] == BUILTIN_NAME
    usage, timings = whole["usage"], whole["timings"]
    assert timings["predicted_n"] == usage["completion_tokens"]
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert timings["predicted_per_second"] > 0
    assert [index for index, chunk in enumerate(chunks) if "timings" in chunk] == [len(chunks) - 1]


def test_a_stream_begins_with_null_and_ends_with_timings(server: Engine) -> None:
    chunks = events(server, stream_options={"include_usage": True}, timings_per_token=True)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert "timings" not in chunks[0]
    assert "timings" in chunks[1]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["timings"]["predicted_n"] == chunks[-1]["usage"]["completion_tokens"]


def test_a_stream_with_logprobs_has_them_in_each_chunk(server: Engine) -> None:
    first, *rest = events(server, logprobs=True, top_logprobs=2)
    told = [chunk["choices"][0] for chunk in rest]
    assert first["choices"][0]["logprobs"] is None
    assert all(choice["logprobs"]["content"] is not None for choice in told[:-1])


def test_the_prompt_is_told_on_request(server: Engine) -> None:
    assert "hi" in post(server, verbose=True).json()["__verbose"]["prompt"]
    assert "__verbose" not in post(server).json()
    assert events(server, verbose=True)[-1]["__verbose"]["prompt"].count("hi")


def test_an_answer_continues_the_final_message(server: Engine) -> None:
    whole = post(server, max_tokens=200).json()["choices"][0]["message"]["content"]
    begun = whole[: whole.index(" ", len(whole) // 2)]
    messages = [*HI, {"role": "assistant", "content": begun}]
    fields: dict[str, Any] = {
        "messages": messages,
        "max_tokens": 200,
        "continue_final_message": True,
    }
    answer = post(server, **fields, add_generation_prompt=False, verbose=True).json()
    rest = answer["choices"][0]["message"]["content"]
    streamed = events(server, **fields)
    assert begun + rest == whole
    assert answer["__verbose"]["prompt"].endswith(begun)
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in streamed) == rest


def test_the_last_word_of_the_assistant_is_continued_unless_a_new_message_is_wanted(
    server: Engine,
) -> None:
    def prompt(**fields: Any) -> str:
        answer = post(server, messages=BEGUN, max_tokens=1, verbose=True, **fields).json()
        return answer["__verbose"]["prompt"]

    assert prompt() == prompt(continue_final_message=True)
    assert prompt().endswith("Hel")
    new = prompt(continue_final_message=False)
    assert new == prompt(add_generation_prompt=True)
    assert not new.endswith("Hel")


BEGUN = [*HI, {"role": "assistant", "content": "Hel"}]
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": HI, "continue_final_message": True},
        {"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": True},
        {"messages": BEGUN, "continue_final_message": "reasoning_content"},
        {
            "messages": [*HI, {"role": "assistant", "reasoning_content": "Hm"}],
            "continue_final_message": "content",
        },
        {
            "messages": [*HI, {"role": "assistant", "tool_calls": [CALL]}],
            "continue_final_message": True,
        },
        {"messages": BEGUN, "continue_final_message": "else"},
    ],
)
def test_what_cannot_be_continued_is_refused(server: Engine, fields: Any) -> None:
    assert refusal(post(server, **fields))["param"].startswith("continue_final_message")


def test_a_provider_cannot_continue_a_message() -> None:
    with RunningServer(HeldBackend()) as held:
        error = refusal(post(held, messages=BEGUN, continue_final_message=True))
    assert (error["param"], error["code"]) == ("continue_final_message", "unsupported_parameter")


def test_a_prompt_without_an_answer_is_refused(server: Engine) -> None:
    assert refusal(post(server, add_generation_prompt=False))["param"] == "add_generation_prompt"


def test_progress_is_told_before_the_answer(server: Engine) -> None:
    messages = [{"role": "user", "content": "A word. " * 150}]
    fields: dict[str, Any] = {"messages": messages, "return_progress": True}
    for cached in (False, True):
        chunks = events(server, **fields)
        reports = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
        done = [report["processed"] for report in reports]
        assert done[0] == reports[0]["cache"]
        assert (reports[0]["cache"] > 100) is cached
        assert done == sorted(set(done))
        assert done[-1] == reports[-1]["total"]
        assert "prompt_progress" in chunks[0]
        assert chunks[len(reports)]["choices"][0]["delta"]["role"] == "assistant"


def test_progress_of_a_prompt_that_does_not_fit_is_an_error(server: Engine) -> None:
    long = [{"role": "user", "content": "word " * 4000}]
    response = post(server, messages=long, stream=True, return_progress=True)
    assert refusal(response)["code"] == "context_length_exceeded"


def test_a_schema_may_stand_beside_the_messages(server: Engine) -> None:
    answer = post(server, json_schema={"const": "42"}).json()
    assert answer["choices"][0]["message"]["content"] == '"42"'
    others: list[dict[str, Any]] = [
        {"grammar": 'root ::= "a"'},
        {"response_format": {"type": "json_object"}},
    ]
    for other in others:
        assert refusal(post(server, json_schema={}, **other))["param"] == "json_schema"
    assert refusal(post(server, json_schema="a"))["param"] == "json_schema"


@pytest.mark.parametrize(
    ("path", "kind"),
    [(CHAT, "invalid_request_error"), (PREFIX, "exceed_context_size_error")],
)
def test_a_conversation_that_does_not_fit_has_its_numbers(
    server: Engine, path: str, kind: str
) -> None:
    long = [{"role": "user", "content": "word " * 4000}]
    for streamed in (False, True):
        error = refusal(post(server, path, messages=long, stream=streamed))
        assert (error["type"], error["code"]) == (kind, "context_length_exceeded")
        assert error["n_prompt_tokens"] > error["n_ctx"] == 2048


def test_the_paths_without_v1_are_the_same() -> None:
    with scripted("text: hi") as running:
        answer = post(running, PREFIX).json()
        listed = httpx.get(f"{running.url}/models", timeout=PATIENCE).json()
        one = httpx.get(f"{running.url}/models/script", timeout=PATIENCE).json()
        responses = httpx.post(
            f"{running.url}/responses/", json={"input": "hi"}, timeout=PATIENCE
        ).json()
        prefixed = httpx.get(f"{running.url}/v1/models", timeout=PATIENCE).json()
    assert answer["choices"][0]["message"]["content"] == "hi"
    assert listed == prefixed
    assert responses["object"] == "response"
    assert listed["data"] == [one]
    assert [entry["model"] for entry in listed["models"]] == ["script"]


@pytest.mark.parametrize(
    ("origins", "allowed"),
    [(("*",), "http://web.example"), (("http://web.example",), "http://web.example"), ((), None)],
)
def test_the_origin_is_named_where_settings_allow_it(
    origins: tuple[str, ...], allowed: str | None
) -> None:
    asked = {"Origin": "http://web.example", "Access-Control-Request-Method": "POST"}
    with scripted(
        "text: hi", ServerSettings(port=0, insecure=True, cors_origins=[*origins])
    ) as held:
        preflight = httpx.options(held.url + CHAT, headers=asked, timeout=PATIENCE)
        answer = httpx.get(f"{held.url}/health", headers=asked, timeout=PATIENCE)
    for response in (preflight, answer):
        assert response.headers.get("access-control-allow-origin") == allowed
    assert (preflight.status_code == 200) is bool(origins)

"""The Gemini API over the in-process engine and the built-in model."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.genai import errors, types

from tests.server.engine import Engine, engine
from tests.server.gemini.harness import ask, google, stream

TOOL: dict[str, Any] = {
    "function_declarations": [
        {
            "name": "list_directory",
            "description": "List a directory.",
            "parameters": {
                "type": "OBJECT",
                "properties": {"path": {"type": "STRING"}},
                "required": ["path"],
            },
        }
    ]
}


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    with engine(parallel=2) as running:
        yield running


def usage_of(answer: types.GenerateContentResponse) -> types.GenerateContentResponseUsageMetadata:
    assert answer.usage_metadata is not None
    return answer.usage_metadata


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_each_turn_reads_the_one_before_from_the_cache(server: Engine, how: str) -> None:
    with google(server) as client:
        config: Any = {"system_instruction": f"Be brief ({how}).", "max_output_tokens": 16}
        chat: Any = client.chats.create(model="m", config=config)
        prompts: list[int] = []
        for question in ("Where is the door?", "And the window?", "And you?"):
            if how == "streamed":
                answer = list(chat.send_message_stream(question))[-1]
            else:
                answer = chat.send_message(question)
            usage = usage_of(answer)
            if prompts:
                assert (usage.cached_content_token_count or 0) >= prompts[-1] - 4
            prompts.append(usage.prompt_token_count or 0)
    assert prompts == sorted(set(prompts))


def test_a_call_is_demanded_and_its_result_extends_the_prompt(server: Engine) -> None:
    config: Any = {"tools": [TOOL]}
    demand = {"function_calling_config": {"mode": "ANY"}}
    with google(server) as client:
        first = ask(client, "List /tmp.", **config, tool_config=demand, max_output_tokens=64)
        (call,) = first.function_calls or []
        assert call.name == "list_directory"
        assert set(call.args or {}) == {"path"}
        result = types.Part.from_function_response(name="list_directory", response={"output": "a"})
        history = [
            types.UserContent("List /tmp."),
            (first.candidates or [])[0].content,
            types.UserContent(result),
        ]
        second = ask(client, history, **config, max_output_tokens=8)
    prompt = usage_of(first).prompt_token_count or 0
    assert (usage_of(second).cached_content_token_count or 0) >= prompt - 4


def test_formats_are_enforced(server: Engine) -> None:
    schema = types.Schema.model_validate(
        {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}, "required": ["n"]}
    )
    with google(server) as client:
        answer = ask(client, response_mime_type="application/json", response_schema=schema)
        words = ["left\x7f\u2028", 'r"ight\n']
        choice = types.Schema.model_validate({"type": "STRING", "enum": words})
        word = ask(client, response_mime_type="text/x.enum", response_schema=choice)
    assert isinstance(answer.parsed, dict)
    assert isinstance(answer.parsed["n"], int)
    assert word.text in words


def test_what_the_backend_refuses_is_named_as_google_does(server: Engine) -> None:
    with google(server) as client, pytest.raises(errors.ClientError) as caught:
        ask(client, stop_sequences=["x" * 5000])
    error: Any = caught.value
    (violation,) = error.details["error"]["details"][1]["fieldViolations"]
    assert violation["field"] == "generationConfig.stopSequences"


def test_logprobs(server: Engine) -> None:
    config = {"response_logprobs": True, "logprobs": 2, "max_output_tokens": 5}
    with google(server) as client:
        (whole,) = ask(client, **config).candidates or []
        chunks = [c for event in stream(client, **config) for c in event.candidates or []]
    assert whole.logprobs_result is not None
    chosen = whole.logprobs_result.chosen_candidates or []
    top = whole.logprobs_result.top_candidates or []
    assert len(chosen) == len(top) > 0
    assert all(len(place.candidates or []) == 2 for place in top)
    assert all((token.log_probability or 0) <= 0 for token in chosen)
    assert all(token.token_id is not None for token in chosen)
    pieces = [c.logprobs_result.chosen_candidates or [] for c in chunks if c.logprobs_result]
    assert [token for piece in pieces for token in piece] == chosen
    assert whole.avg_logprobs == chunks[-1].avg_logprobs is not None


def test_the_count_is_the_prompt_s(server: Engine) -> None:
    with google(server) as client:
        models: Any = client.models
        counted = models.count_tokens(model="m", contents="How long is this?")
        answer = ask(client, "How long is this?", max_output_tokens=1)
    assert counted.total_tokens == usage_of(answer).prompt_token_count

"""The Ollama API over the in-process engine and the built-in model."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from tests.patience import PATIENCE
from tests.server.engine import Engine, engine
from tests.server.ollama.harness import CHAT, HI, client_of

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "list_directory",
        "description": "List a directory.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    with engine(parallel=2) as running:
        yield running


def test_each_turn_reads_the_one_before_from_the_cache(server: Engine) -> None:
    history: list[Any] = [{"role": "system", "content": "Be brief (ollama)."}]
    prompts: list[int] = []
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        for question in ("Where is the door?", "And the window?", "And you?"):
            history.append({"role": "user", "content": question})
            body = {"model": "m", "messages": history, "stream": False}
            answer = client.post(CHAT, json=body).json()
            history.append(answer["message"])
            if prompts:
                assert answer["prompt_eval_cached_count"] >= prompts[-1] - 4
            prompts.append(answer["prompt_eval_count"])
    assert prompts == sorted(set(prompts))


def test_a_call_and_its_result_extend_the_prompt(server: Engine) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "List /tmp."},
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": "list_directory", "arguments": {"path": "/"}}}],
        },
        {"role": "tool", "tool_name": "list_directory", "content": "a.txt"},
    ]
    with client_of(server) as client:
        first = client.chat(model="m", messages=messages[:1], tools=[TOOL])
        answer = client.chat(model="m", messages=messages, tools=[TOOL])
    assert first.message.content or first.message.tool_calls
    assert answer.prompt_eval_count > first.prompt_eval_count


def test_formats_are_enforced(server: Engine) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    with client_of(server) as client:
        answer = client.chat(model="m", messages=HI, format=schema)
        plain = client.generate(model="m", prompt="hi", format="json", options={"num_predict": 64})
    assert isinstance(json.loads(answer.message.content)["n"], int)
    assert plain.response.startswith("{")


def test_a_raw_prompt_is_continued_as_it_is(server: Engine) -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    options: Any = {"num_predict": 8}
    with client_of(server) as client:
        raw = client.generate(model="m", prompt=prompt, raw=True, options=options)
        plain = client.generate(model="m", prompt="hi", options=options)
    assert raw.response
    assert raw.prompt_eval_count < plain.prompt_eval_count or raw.response == plain.response


def test_the_last_word_of_the_assistant_is_continued(server: Engine) -> None:
    with client_of(server) as client:
        whole = client.chat(model="m", messages=HI).message.content
        begun = [*HI, {"role": "assistant", "content": whole[:5]}]
        rest = client.chat(model="m", messages=begun).message.content
    assert whole[:5] + rest == whole


def test_a_gap_is_refused_by_a_model_that_can_t_fill_it(server: Engine) -> None:
    with client_of(server) as client, pytest.raises(ollama.ResponseError) as caught:
        client.generate(model="m", prompt="def f(", suffix="return x")
    assert caught.value.status_code == 400


def test_logprobs(server: Engine) -> None:
    options: Any = {"model": "m", "messages": HI, "logprobs": True, "top_logprobs": 2}
    with client_of(server) as client:
        whole = client.chat(**options, options={"num_predict": 5})
        chunks: list[Any] = list(client.chat(**options, options={"num_predict": 5}, stream=True))
    assert whole.logprobs
    streamed: list[Any] = [token for chunk in chunks for token in chunk.logprobs or ()]
    assert streamed == whole.logprobs
    assert all(len(token.top_logprobs) == 2 for token in whole.logprobs)
    assert all(token.logprob <= 0 for token in whole.logprobs)

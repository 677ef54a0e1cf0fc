"""Sampling and log probabilities for the official client, over the built-in model."""

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionTokenLogprob

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from tests.server.harness import RunningServer, ask, joined, scripted, stream

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "list_directory",
            "description": "List a directory.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    async def load() -> LlamaCppBackend:
        greedy = Sampling(temperature=0.0)
        settings = LlamaCppSection(threads=1, speculation="off")
        return await LlamaCppBackend.load(builtin_model(), settings, greedy, parallel=2)

    loop = asyncio.new_event_loop()
    with (
        RunningServer(loop.run_until_complete(load()), loop=loop) as running,
        running.client() as opened,
    ):
        ask(opened, max_tokens=1)  # from here on all find the prompt in memory: equal batches
        yield opened


def told(choice: Any) -> list[ChatCompletionTokenLogprob]:
    return [] if choice.logprobs is None else choice.logprobs.content or []


def content(tokens: list[ChatCompletionTokenLogprob]) -> str:
    return b"".join(bytes(token.bytes or []) for token in tokens).decode("utf-8", "replace")


def logprobs(tokens: list[ChatCompletionTokenLogprob]) -> list[float]:
    return [token.logprob for token in tokens]


def test_log_probabilities_of_an_answer(client: openai.OpenAI) -> None:
    plain = ask(client).choices[0]
    choice = ask(client, logprobs=True, top_logprobs=2).choices[0]
    assert plain.logprobs is None
    assert choice.message.content == plain.message.content
    tokens = told(choice)
    assert content(tokens) == choice.message.content
    for token in tokens:
        assert token.token == bytes(token.bytes or []).decode("utf-8", "replace")
        assert len(token.top_logprobs) == 2
        assert token.top_logprobs[0].token == token.token
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob)
        assert sum(math.exp(top.logprob) for top in token.top_logprobs) <= 1.0 + 1e-5
    alone = told(ask(client, logprobs=True).choices[0])
    assert logprobs(alone) == pytest.approx(logprobs(tokens), abs=1e-3)
    assert not any(token.top_logprobs for token in alone)


@pytest.mark.parametrize("options", [{}, {"stop": ["Pup"]}, {"max_tokens": 3}])
def test_a_stream_tells_the_same(client: openai.OpenAI, options: dict[str, Any]) -> None:
    asking = {"logprobs": True, "top_logprobs": 1, **options}
    whole = ask(client, **asking).choices[0]
    chunks = stream(client, **asking)
    tokens = [token for chunk in chunks for token in told(chunk.choices[0])]
    assert content(tokens).startswith(joined(chunks))
    assert [t.bytes for t in tokens] == [t.bytes for t in told(whole)]
    assert logprobs(tokens) == pytest.approx(logprobs(told(whole)), abs=1e-3)
    assert "Pup" not in content(tokens) or "stop" not in options


def test_each_choice_has_its_own(client: openai.OpenAI) -> None:
    wild = {"temperature": 8, "top_p": 1, "seed": 3, "extra_body": {"top_k": 0}}
    options = {"n": 2, "logprobs": True, "max_tokens": 8, **wild}
    for choice in ask(client, **options).choices:
        assert told(choice)
        assert content(told(choice)) == choice.message.content
    chunks = stream(client, **options)
    for index in range(2):
        own = [c.choices[0] for c in chunks if c.choices[0].index == index]
        text = "".join(choice.delta.content or "" for choice in own)
        assert content([token for choice in own for token in told(choice)]) == text != ""


def test_a_call_has_none(client: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "List the files in src"}]
    options = {"messages": question, "tools": TOOLS, "tool_choice": "required", "logprobs": True}
    choice = ask(client, **options).choices[0]
    assert choice.message.tool_calls
    assert choice.logprobs is not None
    assert told(choice) == []


def test_biases_force_and_ban(client: openai.OpenAI) -> None:
    first = told(ask(client, logprobs=True, max_tokens=1).choices[0])[0]
    banned = ask(client, logit_bias={first.token: -100}, max_tokens=1).choices[0]
    assert banned.message.content != first.token
    forced = ask(client, logit_bias={"40": 100}, max_tokens=4, logprobs=True).choices[0]
    tokens = told(forced)
    assert len(tokens) == 4
    assert len({token.token for token in tokens}) == 1
    assert tokens[0].logprob < -1


def test_llama_cpps_parameters_work(client: openai.OpenAI) -> None:
    plain = ask(client)
    assert plain.usage is not None
    limit = plain.usage.completion_tokens + 10
    endless = ask(client, max_tokens=limit, extra_body={"ignore_eos": True})
    assert endless.choices[0].finish_reason == "length"
    assert endless.usage is not None
    assert endless.usage.completion_tokens == limit
    for wild in (
        {"mirostat": 2, "mirostat_tau": 8},
        {"mirostat": 1},
        {"samplers": ["temperature", "min_p"], "min_p": 0.01},
        {"dry_multiplier": 1, "xtc_probability": 0.5, "typ_p": 0.9, "dynatemp_range": 0.5},
    ):
        again = [
            ask(client, temperature=2, seed=7, max_tokens=16, extra_body=wild).choices[0].message
            for _ in range(2)
        ]
        assert again[0] == again[1]


def test_what_only_the_model_can_refuse_is_named(client: openai.OpenAI) -> None:
    for options, param in (
        ({"logit_bias": {"99999999": 1}}, "logit_bias"),
        ({"extra_body": {"samplers": ["magic"]}}, "samplers"),
        ({"extra_body": {"dry_sequence_breakers": ["x" * 41]}}, "dry_sequence_breakers"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, **options)
        assert caught.value.param == param


def test_a_backend_without_log_probabilities_tells_none() -> None:
    with scripted("text: hi") as running, running.client() as client:
        assert ask(client, logprobs=True).choices[0].logprobs is None

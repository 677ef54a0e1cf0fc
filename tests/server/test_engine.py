"""The server over the in-process engine and the built-in model."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import Sampling
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, ask, joined, stream

GREEDY = Sampling(temperature=0.0)
LONG: list[Any] = [{"role": "user", "content": "word " * 6000}]
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

Engine = RunningServer[LlamaCppBackend]


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    async def load() -> LlamaCppBackend:
        return await LlamaCppBackend.load(
            builtin_model(), LlamaCppSection(threads=1), GREEDY, parallel=2, name=BUILTIN_NAME
        )

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), loop=loop) as running:
        yield running


def test_an_answer_and_its_stream_are_the_same(server: Engine) -> None:
    with server.client() as client:
        whole = ask(client)
        chunks = stream(client, stream_options={"include_usage": True})
    assert whole.model == "gpt-4"
    assert whole.choices[0].message.content
    assert joined(chunks) == whole.choices[0].message.content
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_second_turn_reads_the_first_from_the_cache(server: Engine) -> None:
    with server.client() as client:
        first = ask(client, messages=[{"role": "system", "content": "Be brief."}, *HI])
        history: list[Any] = [
            {"role": "system", "content": "Be brief."},
            *HI,
            {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "And now?"},
        ]
        second = ask(client, messages=history)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    # all but the last token that was sampled, which was never decoded
    cached = second.usage.prompt_tokens_details.cached_tokens or 0
    assert cached >= first.usage.total_tokens - 1


def test_tool_round_trip(server: Engine) -> None:
    question = [{"role": "user", "content": "List the files in src"}]
    with server.client() as client:
        choice = ask(client, messages=question, tools=TOOLS).choices[0]
        calls = choice.message.tool_calls or []
        history: list[Any] = [
            *question,
            choice.message.model_dump(exclude_none=True),
            *({"role": "tool", "tool_call_id": c.id, "content": "main.py"} for c in calls),
        ]
        answer = ask(client, messages=history, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert [c.model_dump()["function"]["name"] for c in calls] == ["list_directory"]
    assert answer.finish_reason == "stop"
    assert answer.message.content


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "list_directory"}}]
)
def test_a_call_that_is_asked_for_comes(server: Engine, choice: Any) -> None:
    with server.client() as client:
        answer = ask(client, tools=TOOLS, tool_choice=choice).choices[0]
        chunks = stream(client, tools=TOOLS, tool_choice=choice)
        free = ask(client, tools=TOOLS, tool_choice="none").choices[0]
    calls = answer.message.tool_calls or []
    assert answer.finish_reason == "tool_calls"
    assert {call.model_dump()["function"]["name"] for call in calls} == {"list_directory"}
    assert all(json.loads(call.model_dump()["function"]["arguments"]) is not None for call in calls)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert free.finish_reason == "stop"
    assert free.message.content


def test_answers_fit_the_response_format_and_the_grammar(server: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"mood": {"enum": ["good", "bad"]}, "words": {"type": "integer"}},
        "required": ["mood", "words"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "m", "schema": schema, "strict": True}}
    with server.client() as client:
        whole = ask(client, response_format=wanted, temperature=0).choices[0]
        chunks = stream(client, response_format=wanted, temperature=0)
        some = ask(client, response_format={"type": "json_object"}, max_tokens=200).choices[0]
        yes = ask(client, extra_body={"grammar": 'root ::= "yes" | "no"'}).choices[0]
    value = json.loads(whole.message.content or "")
    assert value.keys() == {"mood", "words"}
    assert joined(chunks) == whole.message.content
    assert some.finish_reason == "length" or json.loads(some.message.content or "") is not None
    assert yes.message.content in ("yes", "no")


@pytest.mark.parametrize("streams", [False, True])
def test_keywords_that_are_not_enforced_are_named_in_a_header(
    server: Engine, *, streams: bool
) -> None:
    def header(words: dict[str, Any]) -> str:
        tags = {"type": "array", "items": {"const": "a"}, **words}
        schema = {"type": "object", "properties": {"tags": tags}}
        form = {"type": "json_schema", "json_schema": {"name": "m", "schema": schema}}
        body = {"messages": HI, "max_tokens": 4, "stream": streams, "response_format": form}
        answer = httpx.post(server.url + CHAT, json=body, timeout=PATIENCE)
        assert answer.status_code == 200
        return answer.headers.get("x-shepherd-schema-not-enforced", "")

    assert header({"uniqueItems": True, "contains": {"const": "a"}}) == "contains, uniqueItems"
    assert not header({"maxItems": 2})


@pytest.mark.parametrize("how", [ask, stream])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"extra_body": {"grammar": "root ::= ("}}, "expecting"),
        ({"response_format": {"type": "json_object", "schema": {"type": "x"}}}, "unknown type"),
    ],
)
def test_a_bad_schema_or_grammar_is_a_400(
    server: Engine, how: Any, options: Any, reason: str
) -> None:
    with server.client() as client, pytest.raises(openai.BadRequestError, match=reason):
        how(client, **options)


@pytest.mark.parametrize(
    ("path", "field", "body"),
    [
        ("/v1/chat/completions", "response_format", {"messages": HI}),
        ("/v1/completions", "json_schema", {"prompt": "Hi"}),
    ],
)
def test_a_bad_schema_is_refused_with_its_field(
    server: Engine, path: str, field: str, body: dict[str, Any]
) -> None:
    schema: Any = {"type": "thing"}
    if field == "response_format":
        schema = {"type": "json_object", "schema": schema}
    refused = httpx.post(server.url + path, json=body | {field: schema}, timeout=PATIENCE)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("how", [ask, stream])
def test_a_tool_that_cannot_be_enforced_is_a_400(server: Engine, how: Any) -> None:
    function = {"name": "odd", "parameters": {"type": "object", "properties": {"a": {"type": "b"}}}}
    odd = [{"type": "function", "function": function}]
    with server.client() as client, pytest.raises(openai.BadRequestError, match="unknown type"):
        how(client, tools=odd, tool_choice="required")


@pytest.mark.parametrize("how", [ask, stream])
def test_too_long_a_conversation_is_refused(server: Engine, how: Any) -> None:
    with server.client() as client, pytest.raises(openai.BadRequestError) as caught:
        how(client, messages=LONG)
    assert caught.value.code == "context_length_exceeded"
    size = server.backend.info.context_size
    assert f"maximum context length is {size} tokens" in str(caught.value)


def test_limits_and_stops_are_obeyed(server: Engine) -> None:
    with server.client() as client:
        whole = ask(client).choices[0].message.content or ""
        short = ask(client, max_tokens=3)
        stopped = ask(client, stop=whole[4:8]).choices[0]
    assert short.choices[0].finish_reason == "length"
    assert short.usage is not None
    assert short.usage.completion_tokens == 3
    assert stopped.message.content == whole[:4]
    assert stopped.finish_reason == "stop"


@pytest.mark.parametrize("words", [1, 3000])
def test_hanging_up_leaves_the_engine_idle(server: Engine, words: int) -> None:
    messages = [{"role": "user", "content": "Where? " * words}]
    for streamed in (True, False) * 3:
        server.connect_and_post({"messages": messages, "stream": streamed}).close()
    server.until(lambda: not server.backend._jobs)  # pyright: ignore[reportPrivateUsage] - its own state
    with server.client() as client:
        assert ask(client).choices[0].message.content


async def test_many_clients_are_all_answered(server: Engine) -> None:
    questions = [f"What is in file{n}.txt?" for n in range(16)]
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:

        async def one(question: str) -> str:
            answer = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": question}], max_tokens=16
            )
            return answer.choices[0].message.content or ""

        together = await asyncio.gather(*(one(question) for question in questions))
    assert all(together)

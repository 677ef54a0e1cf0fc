"""Several answers to one request."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import Sampling, choice_seed
from shepherd.server.settings import ServerSettings
from tests.server.harness import HI, RunningServer, Scripted, ask, scripted, stream
from tests.server.held import HeldBackend

Engine = RunningServer[LlamaCppBackend]
VARIED: dict[str, Any] = {"temperature": 5.0, "top_p": 1.0, "seed": 7, "max_tokens": 12}
LIST: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "list_directory",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]


@pytest.fixture(scope="module", params=[1, 3])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """With fewer sequences than choices, and with enough."""
    settings = LlamaCppSection(threads=1, speculation="off")

    async def load() -> LlamaCppBackend:
        greedy = Sampling(temperature=0.0)
        return await LlamaCppBackend.load(
            builtin_model(), settings, greedy, parallel=request.param, name=BUILTIN_NAME
        )

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), loop=loop) as running:
        each(running, {"max_tokens": 1})  # from here on all find the prompt in memory
        yield running


@pytest.fixture(scope="module")
def turns() -> Iterator[Scripted]:
    """A backend that shares nothing."""
    with scripted('text: "one"\n---\ntext: "two"\n---\ntext: "three"') as server:
        yield server


def by_choice(chunks: list[ChatCompletionChunk]) -> dict[int, list[ChatCompletionChunk]]:
    sorted_out: defaultdict[int, list[ChatCompletionChunk]] = defaultdict(list)
    for chunk in chunks:
        for choice in chunk.choices:
            sorted_out[choice.index].append(chunk)
    return sorted_out


def test_choices_share_the_prompt_and_differ(engine: Engine) -> None:
    varied = VARIED | {"extra_body": {"ignore_eos": True}}
    answer = each(engine, varied | {"n": 3})
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert answer.usage is not None
    alone = [each(engine, varied | {"seed": choice_seed(7, index)}) for index in range(3)]
    assert answer.usage.prompt_tokens == alone[0].usage.prompt_tokens
    assert answer.usage.completion_tokens == sum(a.usage.completion_tokens for a in alone)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def each(engine: Engine, options: dict[str, Any]) -> Any:
    with engine.client() as client:
        return ask(client, **options)


@pytest.mark.parametrize("engine", [1], indirect=True)
def test_each_choice_says_what_its_seed_says_alone(engine: Engine) -> None:
    """One sequence: beside others the last bits of the numbers may differ."""
    texts = [choice.message.content for choice in each(engine, VARIED | {"n": 3}).choices]
    for index, text in enumerate(texts):
        alone = each(engine, VARIED | {"seed": choice_seed(7, index)})
        assert alone.choices[0].message.content == text


def test_only_the_first_choice_decodes_the_prompt(engine: Engine) -> None:
    context = engine.backend._worker.loaded.result().context  # pyright: ignore[reportPrivateUsage] - the engine's own count
    messages = [{"role": "user", "content": "word " * 300}]
    before = context.decoded_tokens
    answer = each(engine, {"messages": messages, "n": 3, "max_tokens": 2})
    prompt = answer.usage.prompt_tokens
    assert prompt > 300
    assert context.decoded_tokens - before < prompt + 3 * 4


def test_a_stream_tells_the_choices_apart(engine: Engine) -> None:
    with engine.client() as client:
        whole = ask(client, n=3)
        chunks = stream(client, n=3, stream_options={"include_usage": True})
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    sorted_out = by_choice(chunks)
    assert sorted_out.keys() == {0, 1, 2}
    for index, own in sorted_out.items():
        deltas = [chunk.choices[0].delta for chunk in own]
        assert [d.role for d in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
        said = "".join(delta.content or "" for delta in deltas)
        assert said == whole.choices[index].message.content != ""
        reasons = [chunk.choices[0].finish_reason for chunk in own]
        assert reasons == [None] * (len(own) - 1) + ["stop"]


def test_choices_with_tools_and_stop_strings(engine: Engine) -> None:
    with engine.client() as client:
        messages: list[Any] = [{"role": "user", "content": "List the files in src"}]
        called = ask(client, messages=messages, tools=LIST, n=2)
        plain = ask(client).choices[0].message.content or ""
        stopped = ask(client, n=2, stop=plain[4:8])
    for choice in called.choices:
        assert choice.finish_reason == "tool_calls"
        assert len(choice.message.tool_calls or []) == 1
    assert [choice.message.content for choice in stopped.choices] == [plain[:4]] * 2


@pytest.mark.parametrize("streamed", [True, False])
def test_hanging_up_ends_all_choices(engine: Engine, streamed: bool) -> None:  # noqa: FBT001
    body = {"messages": HI, "n": 3, "stream": streamed, "temperature": 2.0}
    for _ in range(3):
        engine.connect_and_post(body).close()
    engine.until(lambda: engine.backend.running == 0)
    assert each(engine, {}).choices[0].message.content


def test_without_sharing_there_are_as_many_turns(turns: Scripted) -> None:
    with turns.client() as client:
        answer = ask(client, n=3)
        chunks = by_choice(stream(client, n=3))
    texts = {choice.message.content for choice in answer.choices}
    streamed = {
        "".join(chunk.choices[0].delta.content or "" for chunk in own) for own in chunks.values()
    }
    assert texts == streamed == {"one", "two", "three"}
    assert turns.backend.active == 0


def test_a_choice_that_fails_fails_the_request() -> None:
    with scripted('text: "one"\n---\ntext: a\nerror: gone') as server, server.client() as client:
        with pytest.raises(openai.InternalServerError, match="gone"):
            ask(client, n=2)
        with pytest.raises(openai.APIError, match="gone"):
            stream(client, n=2)
        server.until(lambda: server.backend.active == 0)


def test_the_limit_is_a_setting() -> None:
    backend = HeldBackend()
    with (
        RunningServer(backend, ServerSettings(port=0, max_choices=2)) as server,
        server.client() as client,
    ):
        assert len(ask(client, n=2).choices) == 2
        for how in (ask, stream):
            with pytest.raises(openai.BadRequestError, match="max_choices") as caught:
                how(client, n=3)
            assert caught.value.param == "n"
    assert backend.holding == 0


def test_seeds_of_choices_are_valid_and_differ() -> None:
    for seed in (0, 7, 2**32 - 2):
        seeds = [choice_seed(seed, index) for index in range(128)]
        assert seeds[0] == seed
        assert len(set(seeds)) == 128
        assert all(s is not None and 0 <= s < 2**32 - 1 for s in seeds)
    assert choice_seed(None, 3) is None

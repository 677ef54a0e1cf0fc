"""The adapters in a backend, over HTTP: a scripted provider, our own server, llama.cpp's server."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from bench.peers import Load, llama_server
from shepherd.backends.api.adapter import Adapter, ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.backends.api.openai.chat_adapter import OpenAIChatAdapter
from shepherd.backends.api.openai.dialects import EXTENDED, OPENAI
from shepherd.backends.api.openai.responses import OpenAIResponsesAdapter
from shepherd.errors import ContextFullError
from shepherd.events import CallbackEvent, Event, FinishReason
from shepherd.messages import Message
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.session import Session, ToolChoice
from tests.backends.api.openai import test_responses_decoder as responses
from tests.backends.api.openai.official import chunk, completion, said, valid_chat, valid_responses
from tests.backends.api.openai.test_chat_decoder import USAGE, fragment
from tests.backends.api.openai.test_chat_request import SPEC
from tests.backends.api.upstream import Reply, Upstream
from tests.flat_events import flat
from tests.server.harness import scripted

CONTEXT = 1024


@dataclass
class Heard:
    """The events of a generation, text of one kind joined."""

    events: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    def __call__(self, event: Event) -> bool:
        kind, content, name, _ = flat(event)
        if kind is CallbackEvent.STATS:
            return True
        last = self.events[-1] if self.events else ("", "", "")
        if last[0] == kind and kind in (CallbackEvent.CONTENT, CallbackEvent.THINKING):
            self.events[-1] = (kind, last[1] + content, name)
        else:
            self.events.append((kind, content, name))
        return True


def backend(url: str, adapter: Adapter, model: str, size: int = 0) -> ApiBackend:
    return ApiBackend(Endpoint(f"{url}/v1", "key"), adapter, ModelTraits(model, size))


async def test_a_turn_with_a_tool() -> None:
    call = fragment(0, '{"a"', id="call_1", type="function", name="add")
    first = [said(role="assistant", content="Let me "), said(content="see.")]
    first += [said(tool_calls=[call]), said(tool_calls=[fragment(0, ":1}")])]
    first += [said("tool_calls"), chunk(usage=USAGE)]
    replies = [Reply.sse(first), Reply.sse([said(content="Two."), said("stop")])]
    session = Session("Be short.", [Message.user("1+1?")], tools=[SPEC])
    heard = Heard()
    async with Upstream(replies) as upstream:
        api = backend(upstream.url, OpenAIChatAdapter(OPENAI), "gpt-4.1")
        generation = await api.generate_from_session(session, heard)
        session.add(generation.message)
        session.add(Message.tool(generation.message.tool_calls[0], "2"))
        again = await api.generate_from_session(session, heard)
        await api.aclose()
    assert heard.events == [
        ("content", "Let me see.", ""),
        ("stop", "tool_calls", ""),
        ("tool_call", '{"a": 1}', "add"),
        ("content", "Two.", ""),
        ("stop", "stop", ""),
    ]
    assert (generation.stats.prompt_tokens, generation.stats.cached_tokens) == (10, 6)
    assert again.message == Message.assistant("Two.")
    sent = valid_chat(upstream.requests[1].json)["messages"]
    assert upstream.requests[1].path == "/v1/chat/completions"
    assert upstream.requests[1].headers["authorization"] == "Bearer key"
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool"]


async def test_a_server_that_does_not_stream() -> None:
    whole = Reply(completion({"content": "Hi."}, "stop", usage=USAGE))
    heard = Heard()
    async with Upstream([whole]) as upstream:
        api = backend(upstream.url, OpenAIChatAdapter(OPENAI), "gpt-4.1")
        generation = await api.generate_from_session(Session("", [Message.user("hi")]), heard)
        await api.aclose()
    assert heard.events == [("content", "Hi.", ""), ("stop", "stop", "")]
    assert generation.stats.prompt_tokens == 10


async def test_the_responses_api_gets_its_reasoning_back() -> None:
    stream = [(event["type"], event) for event in responses.STREAM]
    last = [(e["type"], e) for e in (responses.text(0, "Rain."), responses.ended())]
    replies = [Reply.sse(stream, done=False), Reply.sse(last, done=False)]
    weather = type(SPEC)("weather", "Tells it.")
    session = Session("", [Message.user("Weather?")], tools=[weather], thinking=True)
    heard = Heard()
    async with Upstream(replies) as upstream:
        api = backend(upstream.url, OpenAIResponsesAdapter(), "gpt-5")
        generation = await api.generate_from_session(session, heard)
        session.add(generation.message)
        session.add(Message.tool(generation.message.tool_calls[0], "rain"))
        again = await api.generate_from_session(session, heard)
        await api.aclose()
    assert [kind for kind, _, _ in heard.events[:4]] == [
        *("thinking", "content", "stop", "tool_call")
    ]
    assert again.message.content == "Rain."
    sent = valid_responses(upstream.requests[1].json)
    assert upstream.requests[1].path == "/v1/responses"
    kinds = ["message", "reasoning", "message", "function_call", "function_call_output"]
    assert [item["type"] for item in sent["input"]] == kinds
    assert sent["input"][1] == responses.REASONING


async def test_our_own_server_behind_us() -> None:
    script = 'context: 500\nthink: hm\ntext: So ö.\ncall: add {"a": 1}\n---\ntext: Done.'
    session = Session("Be short.", [Message.user("1+1?")], tools=[SPEC], thinking=True)
    heard = Heard()
    with scripted(script) as server:
        endpoint = Endpoint(f"{server.url}/v1")
        api = await ApiBackend.connect(endpoint, OpenAIChatAdapter(EXTENDED), ModelTraits(""))
        assert (api.info.id, api.info.context_size) == ("script", 500)
        generation = await api.generate_from_session(session, heard)
        session.add(generation.message)
        session.add(Message.tool(generation.message.tool_calls[0], "2"))
        again = await api.generate_from_session(session, heard)
        session.add(Message.user("word " * 600))
        with pytest.raises(ContextFullError) as full:
            await api.generate_from_session(session, heard)
        await api.aclose()
    assert heard.events == [
        ("thinking", "hm", ""),
        ("content", "So ö.", ""),
        ("stop", "tool_calls", ""),
        ("tool_call", '{"a": 1}', "add"),
        ("content", "Done.", ""),
        ("stop", "stop", ""),
    ]
    assert again.message.content == "Done."
    over = full.value.tokens_over
    assert over is not None
    assert 100 < over < 200


@pytest.fixture(scope="module")
def llama_cpp() -> Iterator[str]:
    """llama.cpp's own server with Pup; its address."""
    with llama_server(Load(builtin_model(), CONTEXT, threads=1)) as url:
        yield url


async def test_llama_cpp_s_server_behind_us(llama_cpp: str) -> None:
    session = Session(
        "You are a helpful assistant.",
        [Message.user("Hello! Who are you?")],
        sampling=Sampling(temperature=0.0, top_k=1, seed=1, penalty_repeat=1.0),
    )
    heard = Heard()
    api = await ApiBackend.connect(
        Endpoint(f"{llama_cpp}/v1"), OpenAIChatAdapter(EXTENDED), ModelTraits("")
    )
    assert (api.info.context_size, api.window.source) == (CONTEXT, "llama.cpp's /props")
    generation = await api.generate_from_session(session, heard, 40)
    assert generation.message.content == heard.events[0][1] != ""
    assert 0 < generation.stats.completion_tokens <= 40
    assert 0 < generation.stats.prompt_tokens < CONTEXT
    session.add(generation.message)
    session.add(Message.user("And now? " * CONTEXT))
    with pytest.raises(ContextFullError) as full:
        await api.generate_from_session(session, heard, 8)
    assert full.value.tokens_over is not None
    assert full.value.prompt_tokens == CONTEXT + full.value.tokens_over
    session.evict([range(2, 3)])
    session.add(Message.user("And now?"))
    again = await api.generate_from_session(session, heard, 1)
    assert again.finish_reason is FinishReason.LENGTH
    assert again.stats.cached_tokens > 0
    await api.aclose()


async def test_llama_cpp_s_server_calls_a_tool(llama_cpp: str) -> None:
    session = Session(
        "You are a helpful assistant with tools.",
        [Message.user("Use the tool to add 1.")],
        tools=[SPEC],
        tool_choice=ToolChoice(),
        sampling=Sampling(temperature=0.0),
    )
    heard = Heard()
    api = backend(llama_cpp, OpenAIChatAdapter(EXTENDED), "pup", CONTEXT)
    generation = await api.generate_from_session(session, heard, 200)
    call = generation.message.tool_calls[0]
    assert generation.finish_reason is FinishReason.TOOL_CALLS
    assert (call.name, heard.events[-1]) == ("add", ("tool_call", call.arguments_json, "add"))
    session.add(generation.message)
    session.add(Message.tool(call, "2"))
    session.tool_choice = None
    again = await api.generate_from_session(session, heard, 5)
    assert again.stats.prompt_tokens > generation.stats.prompt_tokens
    await api.aclose()

"""Models whose server takes no tools, over real HTTP."""

import json
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.backends.api.overflow import parse_overflow
from shepherd.backends.api.prompt import as_counted, as_sent, rejects_tools
from shepherd.backends.connect import adapter_for
from shepherd.errors import InvalidRequestError
from shepherd.events import CallbackEvent, FinishReason, Topic
from shepherd.messages import JsonObject, Message, Role, ToolCall
from shepherd.session import Session, ToolChoice
from tests.backends.api.conversations import conversations
from tests.backends.api.openai.official import chunk, valid_chat
from tests.backends.api.openai.official import said as delta
from tests.backends.api.support import LIST, Events, asking, options
from tests.backends.api.upstream import Received, Reply, Upstream
from tests.examples import examples
from tests.pictures import picture

TOOLLESS = ModelTraits("m1", tools=False)
TEXTS = [
    "registry.ollama.ai/library/gemma3:4b does not support tools",
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    'tool_choice="required" requires --tool-call-parser to be set',
    "tools param requires --jinja flag",
    "Unsupported param: tools",
    "No endpoints found that support tool use. To learn more about provider routing, visit: …",
    "tools is not supported in this model. For a list of supported models, refer to …",
    "`tools` is not supported with this model",
    "Function calling is not enabled for models/gemma-3-12b-it",
    "This model doesn't support tool use in streaming mode.",
    "deepseek-reasoner does not support Function Calling",
    "groq does not support parameters: ['tools'], for model=x",
    "Unrecognized request argument supplied: tools",
    "Tool calling has not been enabled for this model",
]
OTHER_TEXTS = [
    "This model does not support tool choice",
    "Unrecognized request argument supplied: tools[0].function.strict",
    "tools.0.function.name: does not match the pattern",
    "Invalid schema for function 'list_directory': 'oneOf' is not permitted",
    "At most 128 tools are supported",
    "Parallel tool calls are not supported",
    "Function calling mode `ANY` is not enabled for api version v1beta",
    "No endpoints found that support the provided 'tool_choice' value",
    "This model does not support images",
    "The model `tools` does not exist",
]
REFUSALS = [
    Reply({"error": {"message": TEXTS[1], "type": "BadRequestError", "code": 400}}, 400),
    Reply({"error": {"message": TEXTS[5], "code": 404}}, 404),
    Reply({"error": {"message": TEXTS[3], "type": "server_error", "code": 500}}, 500),
    Reply(
        {
            "detail": [
                {
                    "type": "extra_forbidden",
                    "loc": ["body", "tools"],
                    "msg": "Extra inputs are not permitted",
                }
            ]
        },
        422,
    ),
]


def call(path: str) -> str:
    value = json.dumps({"name": "list_directory", "arguments": {"path": path}})
    return f"<tool_call>\n{value}\n</tool_call>"


def answer(*pieces: Any, usage: int = 0) -> Reply:
    counted = chunk(usage={"prompt_tokens": usage, "completion_tokens": 9, "total_tokens": 9})
    told = [delta(content=piece) if isinstance(piece, str) else piece for piece in pieces]
    return Reply.sse([*told, delta("stop"), *([counted] if usage else [])])


CALLS = answer("I look", ".\n" + call("Köln") + "\n<tool", call(".")[5:])
TEXT = answer("Two ", "files.")


def refusing(refusal: Reply, *answers: Reply) -> Upstream:
    """Answers in order what brings no tools."""
    left = list(answers)
    return Upstream(lambda request: refusal if "tools" in request.json else left.pop(0))


def backend_at(up: Upstream, traits: ModelTraits | None = None) -> ApiBackend:
    url = f"{up.url}/v1"
    model = traits or ModelTraits("m1", 4096)
    adapter = adapter_for("openai", url, "strict")
    return ApiBackend(Endpoint(url, name="acme"), adapter, model, options=options())


def told(up: Upstream, number: int) -> list[JsonObject]:
    """The messages of a request that brings nothing of tools."""
    body = up.requests[number].json
    assert {"tools", "tool_choice", "parallel_tool_calls"}.isdisjoint(body)
    messages = cast(list[JsonObject], valid_chat(body)["messages"])
    assert all(m["role"] != "tool" and "tool_calls" not in m for m in messages)
    return messages


@pytest.mark.parametrize("refusal", REFUSALS, ids=["vllm", "openrouter", "llamacpp", "fields"])
async def test_it_is_asked_again_with_tools_in_words_and_never_with_tools(refusal: Reply) -> None:
    session, events = asking(LIST), Events()
    session.system_message = "Be brief."
    async with refusing(refusal, CALLS, TEXT) as up:
        backend = backend_at(up)
        asked = await backend.generate_from_session(session, events)
        session.add(asked.message)
        for made in reversed(asked.message.tool_calls):
            session.add(Message.tool(made, f"of {made.arguments['path']}"))
        answered = await backend.generate_from_session(session, events)
        await backend.aclose()
    assert asked.finish_reason is FinishReason.TOOL_CALLS
    assert asked.message.content.strip() == "I look."
    assert [c.arguments for c in asked.message.tool_calls] == [{"path": "Köln"}, {"path": "."}]
    assert answered.message.content == "Two files."
    assert len(up.requests) == 3
    system, *_ = first = told(up, 1)
    assert system["content"].startswith("Be brief.\n\n# Tools")
    assert "list_directory" in system["content"]
    again = told(up, 2)
    assert again[:2] == first
    assert [m["role"] for m in again] == ["system", "user", "assistant", "user"]
    assert again[2]["content"].startswith("I look.")
    assert again[2]["content"].count("<tool_call>") == 2
    results = [f"<tool_response>\nof {path}\n</tool_response>" for path in ("Köln", ".")]
    assert again[3]["content"] == "\n".join(results)
    notices = [text for _, text, name, _ in events.all if name == Topic.NOTICE]
    assert len(notices) == 1
    assert "m1" in notices[0]
    assert events.of(CallbackEvent.TOOL_CALL) == ['{"path": "Köln"}', '{"path": "."}']


async def test_what_ollama_says_of_its_model_goes_before_the_first_request() -> None:
    def replied(request: Received) -> Reply:
        shown: JsonObject = {"capabilities": ["completion", "vision"], "model_info": {}}
        last = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True}
        answers = {
            "/api/tags": Reply({"models": [{"name": "m1", "model": "m1"}]}),
            "/api/ps": Reply({"models": [{"name": "m1", "context_length": 4096}]}),
            "/api/show": Reply(shown),
            "/api/chat": Reply.ndjson([last | {"message": {"content": call("a")}}]),
        }
        return answers[request.path]

    session, events = asking(LIST), Events()
    async with Upstream(replied) as up:
        adapter = adapter_for("ollama", up.url)
        backend = await ApiBackend.connect(
            Endpoint(up.url, name="acme"), adapter, ModelTraits("m1"), options=options()
        )
        made = [await backend.generate_from_session(session, events) for _ in range(2)]
        await backend.aclose()
    assert backend.traits.tools is False
    assert [m.message.tool_calls[0].arguments for m in made] == [{"path": "a"}] * 2
    chats = [request.json for request in up.requests if request.path == "/api/chat"]
    assert len(chats) == 2
    assert all("tools" not in body and "# Tools" in str(body["messages"][0]) for body in chats)
    assert len([name for _, _, name, _ in events.all if name == Topic.NOTICE]) == 1


@pytest.mark.parametrize(
    "choice", [ToolChoice(), ToolChoice(single=True), ToolChoice("list_directory")]
)
async def test_a_call_that_is_asked_for_is_asked_for_in_words(choice: ToolChoice) -> None:
    session = asking(LIST)
    session.tool_choice = choice
    async with refusing(REFUSALS[0], CALLS) as up:
        backend = backend_at(up)
        made = await backend.generate_from_session(session, Events())
        await backend.aclose()
    assert made.finish_reason is FinishReason.TOOL_CALLS
    wish = told(up, 1)[0]["content"].rpartition("\n\n")[2]
    assert wish.startswith("Your next answer must be")
    assert ("list_directory" in wish) == bool(choice.name)
    assert ("one or more" in wish) == (choice == ToolChoice())


async def test_a_second_refusal_is_the_error() -> None:
    wrong = Reply({"error": {"message": TEXTS[0]}}, 400)
    async with Upstream([wrong, wrong, TEXT]) as up:
        backend, events = backend_at(up), Events()
        with pytest.raises(InvalidRequestError, match="does not support tools"):
            await backend.generate_from_session(asking(LIST), events)
        assert len(up.requests) == 2
        told(up, 1)
        assert (await backend.generate_from_session(asking(LIST), events)).message.content
        await backend.aclose()
    assert len(up.requests) == 3
    assert len(events.of(CallbackEvent.SYSTEM)) == 1


async def test_without_tools_such_an_error_stays_one() -> None:
    async with Upstream([REFUSALS[0], TEXT]) as up:
        backend, events = backend_at(up), Events()
        with pytest.raises(InvalidRequestError):
            await backend.generate_from_session(asking(), events)
        await backend.aclose()
    assert (len(up.requests), backend.traits.tools) == (1, None)


async def test_without_tools_nothing_changes() -> None:
    """Neither in the request nor in how the answer is read."""
    session, events = asking(), Events()
    async with Upstream([CALLS] * 2) as up:
        made: list[str] = []
        for traits in (ModelTraits("m1"), TOOLLESS):
            backend = backend_at(up, traits)
            made.append((await backend.generate_from_session(session, events)).message.content)
            await backend.aclose()
    assert made[0] == made[1]
    assert call("Köln") in made[0]
    assert up.requests[0].body == up.requests[1].body
    assert events.of(CallbackEvent.SYSTEM) == []


async def test_requests_that_were_ready_before_learn_it_too() -> None:
    async with refusing(REFUSALS[0], TEXT, TEXT) as up:
        backend, events = backend_at(up), Events()
        ready = [await backend.prefill_session(asking(LIST), events) for _ in range(2)]
        for handle in ready:
            made = await backend.generate_from_prefilled(handle, events)
            assert made.message.content == "Two files."
        await backend.aclose()
    assert ["tools" in request.json for request in up.requests] == [True, False] * 2
    assert len(events.of(CallbackEvent.SYSTEM)) == 1


@pytest.mark.parametrize("stop_at", [0, 1])
async def test_cancelling(stop_at: int) -> None:
    """At the notice, when nothing is asked any more, and at the first text."""
    async with refusing(REFUSALS[0], CALLS, TEXT) as up:
        backend, events, session = backend_at(up), Events(stop_at), asking(LIST)
        made = await backend.generate_from_session(session, events)
        assert made.finish_reason is FinishReason.CANCELLED
        assert made.message.tool_calls == ()
        assert len(events.all) == stop_at + 1
        assert len(up.requests) == 1 + stop_at
        assert (await backend.generate_from_session(session, Events())).message.content
        await backend.aclose()


async def test_what_is_counted_is_what_is_sent() -> None:
    session = asking(LIST)
    made = ToolCall("c1", "list_directory", {"path": "x" * 400})
    async with refusing(REFUSALS[0], answer("Hm.", usage=700), TEXT) as up:
        backend = backend_at(up)
        before = await backend.count_session_tokens(session)
        generation = await backend.generate_from_session(session, Events())
        assert generation.stats.prompt_tokens == 700
        assert await backend.count_session_tokens(session) == 700
        session.add(Message.assistant("I look.", tool_calls=(made,)))
        session.add(Message.tool(made, "y" * 400))
        added = [await backend.count_message_tokens(session, m) for m in session.messages[1:]]
        assert await backend.count_session_tokens(session) == pytest.approx(700 + sum(added), abs=2)
        await backend.aclose()
    assert 20 < before < 700
    assert all(count > 50 for count in added)


@pytest.mark.parametrize("text", TEXTS)
def test_who_has_no_tools_is_understood(text: str) -> None:
    assert rejects_tools(text)
    assert parse_overflow({"error": {"message": text}}) is None


@pytest.mark.parametrize("text", OTHER_TEXTS)
def test_a_tool_that_is_wrong_does_not_take_all_of_them(text: str) -> None:
    assert not rejects_tools(text)


@settings(max_examples=examples(40))
@given(conversations)
def test_any_conversation_can_be_told_without_tools(messages: list[Message]) -> None:
    session = Session("Be brief.", list(messages), [LIST], tool_choice=ToolChoice())
    before = list(session.ledger.counts)
    for plain in (as_sent(session, TOOLLESS), as_counted(session, TOOLLESS)):
        assert (plain.tools, plain.tool_choice) == ([], None)
        assert not any(m.tool_calls or m.role is Role.TOOL for m in plain.messages)
        assert as_sent(plain, TOOLLESS) == plain
    sent = as_sent(session, TOOLLESS)
    assert all(one.role != other.role for one, other in pairwise(sent.messages))
    counted = as_counted(session, TOOLLESS)
    assert [len(m.images) for m in counted.messages] == [len(m.images) for m in session.messages]
    assert (session.ledger.counts, session.messages) == (before, messages)


def test_images_of_results_are_still_shown() -> None:
    made = ToolCall("c1", "list_directory", {"path": "."})
    seen = Message(
        Role.TOOL, "Here.", tool_call_id="c1", name="list_directory", images=(picture(),)
    )
    history = [Message.user("?"), Message.assistant("", tool_calls=(made,)), seen]
    sent = as_sent(Session(messages=history, tools=[LIST]), TOOLLESS)
    assert [m.role for m in sent.messages] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert sent.messages[-1].images == (picture(),)

"""Models are asked to think in their way, and get their thoughts back unchanged."""

import pytest
from msgspec.structs import replace

from shepherd.backends.api.adapter import ApiRequest, ModelTraits
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.messages import JsonObject, Message, ToolCall, ToolSpec, message_from_json
from shepherd.messages import message_to_json as to_json
from shepherd.sampling import Sampling
from shepherd.session import Session
from tests.backends.api.anthropic.schema import check_request

OLD = ModelTraits("claude-sonnet-4-5", thinking=True)

CALL = ToolCall("toolu_1", "read", {"path": "a"})
THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": "sig-1"}
AFTER = {"type": "redacted_thinking", "data": "opaque"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}


def kept(model: str) -> JsonObject:
    text = {"type": "text", "length": 8}
    return {"model": model, "blocks": [THOUGHT, text, AFTER, {"type": "tool_use"}]}


def thinker(model: str) -> Message:
    message = Message.assistant("I read a", "Let me see.", (CALL,))
    return replace(message, extra={"anthropic": kept(model)})


def session(*messages: Message, thinking: bool = True) -> Session:
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=40)
    return Session("", list(messages), [ToolSpec("read", "")], sampling, thinking=thinking)


def tool_turn(model: str, *, thinking: bool = True) -> Session:
    read = [Message.user("Read a."), thinker(model), Message.tool(CALL, "text")]
    return session(*read, thinking=thinking)


def request(asked: Session, model: ModelTraits, max_tokens: int = 0) -> ApiRequest:
    sent = AnthropicAdapter().chat(asked, model, max_tokens)
    check_request(sent)
    return sent


def body(asked: Session, model: ModelTraits, max_tokens: int = 0) -> JsonObject:
    return request(asked, model, max_tokens).body or {}


@pytest.mark.parametrize(("limit", "budget"), [(2048, 1024), (9000, 4500), (64_000, 32_000)])
def test_a_budget_is_below_the_limit_and_nothing_is_sampled(limit: int, budget: int) -> None:
    sent = body(session(Message.user("Hi")), OLD, limit)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert sent["max_tokens"] == limit
    assert not {"temperature", "top_p", "top_k"} & sent.keys()


def test_too_small_a_limit_leaves_no_room_to_think() -> None:
    sent = body(session(Message.user("Hi")), OLD, 2047)
    assert "thinking" not in sent
    assert sent["temperature"] == 0.7


BOUND = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}


@pytest.mark.parametrize(
    ("model", "on", "off"),
    [
        ("claude-sonnet-4-6", {"type": "adaptive"}, None),
        ("claude-opus-4-8", {"type": "adaptive", "display": "summarized"}, None),
        ("claude-opus-5", {"type": "adaptive", "display": "summarized"}, {"type": "disabled"}),
        (
            "claude-sonnet-5-5",
            {"type": "adaptive", "display": "summarized", **BOUND},
            {"type": "between_tools"},
        ),
        (
            "claude-opus-5-5",
            {"type": "adaptive", "display": "summarized", **BOUND},
            {"type": "adaptive", "display": "omitted", **BOUND},
        ),
    ],
)
def test_newer_models_decide_how_much_to_think(
    model: str, on: JsonObject, off: JsonObject | None
) -> None:
    traits = ModelTraits(model, thinking=True)
    sent = request(session(Message.user("Hi")), traits, 100)
    assert sent.body is not None
    assert sent.body["thinking"] == on
    beta = {"anthropic-beta": "thinking-binding-controls-2026-08-01"} if "5-5" in model else {}
    assert dict(sent.headers) == {"anthropic-version": "2026-10-21"} | beta
    assert body(session(Message.user("Hi"), thinking=False), traits).get("thinking") == off
    silent = replace(traits, thinking=False)
    assert body(session(Message.user("Hi")), silent).get("thinking") == off


@pytest.mark.parametrize(
    ("model", "thought_by"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("us.anthropic.claude-opus-4-1@20250805", "claude-opus-4-1-20250805"),
    ],
)
def test_thoughts_go_back_unchanged_at_their_places(model: str, thought_by: str) -> None:
    sent = body(tool_turn(thought_by), ModelTraits(model, thinking=True))
    assert "thinking" in sent
    text = {"type": "text", "text": "I read a"}
    assert sent["messages"][1]["content"] == [THOUGHT, text, AFTER, USE]


def test_they_go_back_after_the_turn_and_from_a_session_file_too() -> None:
    turn = tool_turn(OLD.id)
    turn.messages += [Message.assistant("It says text."), Message.user("Thanks.")]
    turn.messages[:] = [message_from_json(to_json(message)) for message in turn.messages]
    assert body(turn, OLD)["messages"][1]["content"][0] == THOUGHT


PLAIN = [{"type": "text", "text": "I read a"}, USE]


@pytest.mark.parametrize(
    "extra",
    [
        {"anthropic": kept("claude-opus-4-5")},
        {"anthropic": kept("claude-sonnet-4")},
        {"anthropic": kept("")},
        {"openai": kept(OLD.id)},
        {"anthropic": {"model": OLD.id, "blocks": "none"}},
        {"anthropic": {"model": OLD.id, "blocks": [{"type": "thinking", "thinking": "?"}]}},
        {"anthropic": kept(OLD.id) | {"blocks": [THOUGHT]}},
        {"anthropic": kept(OLD.id) | {"blocks": [*kept(OLD.id)["blocks"], {"type": "tool_use"}]}},
    ],
)
def test_thoughts_of_others_or_of_another_message_stay_away(extra: JsonObject) -> None:
    """And with a budget the model can't think on where the turn did not begin with a thought."""
    foreign = replace(thinker(OLD.id), extra=extra)
    sent = body(session(Message.user("Read a."), foreign, Message.tool(CALL, "text")), OLD)
    assert sent["messages"][1]["content"] == PLAIN
    assert "thinking" not in sent


def test_a_turn_that_is_over_does_not_keep_the_model_from_thinking() -> None:
    read = [Message.user("Read."), replace(thinker(OLD.id), extra={}), Message.tool(CALL, "text")]
    sent = body(session(*read, Message.assistant("Done."), Message.user("Again.")), OLD)
    assert sent["thinking"]["type"] == "enabled"


@pytest.mark.parametrize("model", [OLD.id, "claude-opus-5", "claude-sonnet-5-5"])
def test_who_does_not_think_gets_no_thoughts(model: str) -> None:
    sent = body(tool_turn(model, thinking=False), ModelTraits(model, thinking=True))
    assert sent["messages"][1]["content"] == PLAIN

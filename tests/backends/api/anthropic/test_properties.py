"""Whatever a session is, the request is one that the API takes, and that its cache finds again."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.backends.api.anthropic.dialect import THOUGHTS
from shepherd.messages import JsonObject, Message, Role
from shepherd.session import Session
from tests.backends.api.anthropic.schema import check_request
from tests.backends.api.anthropic.strategies import MODELS, rounds, sessions
from tests.examples import examples

traits = st.builds(
    ModelTraits,
    st.sampled_from(MODELS),
    st.sampled_from([0, 4096, 200_000]),
    st.sampled_from([0, 1000, 64_000]),
    thinking=st.booleans(),
)
limits = st.sampled_from([0, 1, 2047, 2048, 9000, 10**6])


def body(session: Session, model: ModelTraits, max_tokens: int = 0) -> JsonObject:
    return check_request(AnthropicAdapter().chat(session, model, max_tokens))


def blocks(sent: JsonObject) -> Iterator[JsonObject]:
    yield from sent.get("tools", [])
    yield from sent.get("system", [])
    for message in sent["messages"]:
        yield from message["content"]


@given(sessions, traits, limits)
def test_every_request_is_valid(session: Session, model: ModelTraits, limit: int) -> None:
    sent = body(session, model, limit)
    check_turns(sent)
    check_thinking(sent)
    check_marks(sent)
    assert 1 <= sent["max_tokens"] <= min(limit or 10**6, model.context_size or 10**6)
    own = {
        part.get("signature", part.get("data"))
        for message in session.messages
        if message.extra.get("anthropic", {}).get("model") == model.id
        for part in message.extra["anthropic"]["blocks"]
    }
    for block in blocks(sent):
        if block.get("type") in THOUGHTS:
            assert block.get("signature", block.get("data")) in own


def check_turns(sent: JsonObject) -> None:
    """The sides take turns, each call is answered in the next one, and no text is empty."""
    messages = sent["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    asked: list[str] = []
    seen: set[str] = set()
    for message in messages:
        content = message["content"]
        assert content
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        assert results == asked
        assert all(block["type"] == "tool_result" for block in content[: len(results)])
        asked = [block["id"] for block in content if block["type"] == "tool_use"]
        assert len({*seen, *asked}) == len(seen) + len(asked)
        seen.update(asked)
    assert not asked
    assert "tools" in sent or not seen
    assert all(block["text"].strip() for block in blocks(sent) if block.get("type") == "text")


def check_thinking(sent: JsonObject) -> None:
    """The budget is within the limits; what does not go with thinking is not there."""
    thinking = sent.get("thinking", {"type": "none"})
    if thinking["type"] == "enabled":
        assert 1024 <= thinking["budget_tokens"] < sent["max_tokens"]
    if thinking["type"] in ("enabled", "adaptive"):
        assert not {"temperature", "top_p", "top_k"} & sent.keys()
    else:
        assert all(block.get("type") not in THOUGHTS for block in blocks(sent))


def check_marks(sent: JsonObject) -> None:
    """At most four marks, at the ends of what stays."""
    marked = [block for block in blocks(sent) if "cache_control" in block]
    users = [m["content"] for m in sent["messages"] if m["role"] == "user"]
    ends = [sent.get("tools", []), sent.get("system", []), *users[-2:]]
    assert marked == [part[-1] for part in ends if part]
    assert len(marked) <= 4


@settings(max_examples=examples(50))
@given(sessions, st.lists(rounds, min_size=1, max_size=2), traits)
def test_a_longer_conversation_begins_like_the_shorter_one(
    session: Session, more: list[list[Message]], model: ModelTraits
) -> None:
    """So that each request reads from the cache what the one before left, up to its last mark."""
    session.add(Message.user("What is in a?"))
    for answers in more:
        before = body(session, model)
        session.messages += answers
        if session.messages[-1].role is Role.ASSISTANT:
            session.add(Message.user("And in b?"))
        after = body(session, model)
        if before.get("thinking") != after.get("thinking"):
            continue  # the model stops to think in the middle of a turn: its cache is lost
        old, new = before["messages"], after["messages"]
        assert unmarked(new)[: len(unmarked(old))] == unmarked(old)
        if session.tools:
            kept = ("tools", "system")
            assert [after.get(key) for key in kept] == [before.get(key) for key in kept]
        if len(new) == len(old) + 2:
            assert "cache_control" in new[len(old) - 1]["content"][-1]


def unmarked(messages: list[JsonObject]) -> list[tuple[str, JsonObject]]:
    """The blocks with the sides that say them, without the marks."""
    return [
        (message["role"], {key: value for key, value in block.items() if key != "cache_control"})
        for message in messages
        for block in message["content"]
    ]

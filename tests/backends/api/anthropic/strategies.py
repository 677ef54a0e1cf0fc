"""Histories as they may be after evictions, cuts, switches of providers and edited files."""

from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.api.anthropic.dialect import keepsake
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import Session

MODELS = (
    "claude-sonnet-4-5",
    "claude-sonnet-4-6",
    "claude-opus-5",
    "claude-sonnet-5-5",
    "claude-opus-5-5",
    "local.gguf",
)

texts = st.sampled_from(["", " \n", "Hi.", "Error: no", "Köln", "\ud83d"]) | st.text(max_size=6)
ids = st.sampled_from(["toolu_1", "toolu_2", "call:1 é", ""])
calls = st.builds(
    ToolCall,
    ids,
    st.sampled_from(["read", "functions.run", ""]),
    st.dictionaries(texts, texts | st.integers(), max_size=2),
)
junk: st.SearchStrategy[JsonObject] = st.sampled_from(
    [
        {},
        {"model": "local.gguf", "blocks": [{"type": "thinking", "thinking": "?"}]},
        {"model": "", "blocks": [{"type": "thinking", "thinking": "", "signature": "?"}]},
        {"model": 3, "blocks": [None, 4, {}, {"type": "text", "length": -1}]},
    ]
)


def _thought(text: str, number: int) -> JsonObject:
    return {"type": "thinking", "thinking": text, "signature": f"own-{number}"}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _use(call: ToolCall) -> JsonObject:
    return {"type": "tool_use", "call": call}


_REDACTED: JsonObject = {"type": "redacted_thinking", "data": "own-data"}
_thoughts = st.builds(_thought, texts, st.integers(0, 9)) | st.just(_REDACTED)
_blocks = _thoughts | texts.map(_text) | calls.map(_use)


def _answer(model: str, blocks: list[JsonObject]) -> Message:
    """A message as it was assembled from an answer of `model` with these blocks."""
    message = Message.assistant(
        "".join(block.get("text", "") for block in blocks),
        "".join(block.get("thinking", "") for block in blocks),
        tuple(block["call"] for block in blocks if "call" in block),
    )
    kept = keepsake(model, blocks)
    return message if kept is None else replace(message, extra={"anthropic": kept})


answers = st.builds(
    _answer,
    st.sampled_from(MODELS),
    st.lists(_blocks, max_size=4),
)
others = st.builds(
    Message,
    st.sampled_from(Role),
    texts,
    reasoning=texts,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    tool_call_id=ids,
    name=st.sampled_from(["", "read", "shepherd"]),
    extra=st.dictionaries(st.sampled_from(["anthropic", "openai"]), junk, max_size=2),
)
histories = st.lists(answers | others, max_size=6)


def _round(answer: Message, results: list[str]) -> list[Message]:
    return [answer, *map(Message.tool, answer.tool_calls, results)]


def _joined(groups: list[list[Message]]) -> list[Message]:
    return [message for group in groups for message in group]


_rounds = st.builds(_round, answers, st.lists(texts, max_size=3))
rounds = st.lists(_rounds, min_size=1, max_size=2).map(_joined)
"""What comes to a history while the model works: answers, and results of their calls."""

sessions = st.builds(
    Session,
    texts,
    histories,
    st.sampled_from(
        [[], [ToolSpec("read", "")], [ToolSpec("read", "Reads."), ToolSpec("now", "")]]
    ),
    st.builds(
        Sampling,
        temperature=st.none() | st.floats(0, 1),
        top_p=st.none() | st.floats(0, 1),
        top_k=st.none() | st.integers(0, 99),
        min_p=st.none() | st.just(0.1),
        stop=st.sampled_from([None, (), ("END",)]),
    ),
    thinking=st.booleans(),
)

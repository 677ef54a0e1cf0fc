"""Conversations that no API would make, and answers put together."""

import json
from collections.abc import Iterable

from hypothesis import strategies as st

from shepherd.backends.api import stream
from shepherd.messages import JsonObject, Message, Role, ToolCall
from tests.pictures import picture

texts = st.sampled_from(["", " \n", "hi", "Köln", "\ud83d"]) | st.text(max_size=5)
names = st.sampled_from(["read_file", "", "3d.render", "functions.read file", "y" * 200])
signatures = st.sampled_from(["c2ln", "", 7, None])
signed_part: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {"text": texts, "thoughtSignature": signatures}
)
signed_at: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {"at": st.integers(-1, 5) | st.none(), "part": signed_part | st.none()}
)
kept: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["", "call-1", None]),
        "thoughtSignature": signatures,
        "signed": st.none() | st.lists(signed_at, max_size=3),
    }
)
extras = st.dictionaries(st.sampled_from(["gemini", "anthropic"]), kept, max_size=2)
calls = st.builds(
    ToolCall,
    st.sampled_from(["", "a", "b"]),
    names,
    st.dictionaries(texts, texts | st.floats(), max_size=2),
    extras,
)
conversations = st.lists(
    st.builds(
        Message,
        st.sampled_from(Role),
        texts,
        reasoning=texts,
        tool_calls=st.lists(calls, max_size=3).map(tuple),
        tool_call_id=st.sampled_from(["", "a", "b"]),
        name=names,
        extra=extras,
        images=st.lists(st.sampled_from([picture(), picture("b.png", 5)]), max_size=2).map(tuple),
    ),
    max_size=8,
)


def assembled(deltas: Iterable[stream.Delta], adapter: str) -> Message:
    """The message that the deltas make; calls come whole."""
    content = reasoning = ""
    calls: list[ToolCall] = []
    extra: dict[str, JsonObject] = {}
    for delta in deltas:
        match delta:
            case stream.Text(text):
                content += text
            case stream.Thinking(text):
                reasoning += text
            case stream.Call(key, id, name, arguments, kept):
                own = {} if kept is None else {adapter: kept}
                given = json.loads(arguments) if isinstance(arguments, str) else arguments
                calls.append(ToolCall(id or f"call-{key}", name, given, own))
            case stream.Extra(value):
                assert not extra
                extra[adapter] = value
            case _:
                pass
    return Message(Role.ASSISTANT, content, reasoning, tuple(calls), extra=extra)

"""Thought signatures: what has to come back with a message, as a word that clients keep.

A word holds the reasoning, which many clients leave out, and what the API behind a model wants
back. Words of other servers, and Google's placeholders, are ignored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from shepherd.json_text import to_json
from shepherd.messages import JsonObject, Message
from shepherd.server.seal import Seal, SealError

_PURPOSE = "gemini.thought"


@dataclass(frozen=True, slots=True)
class Thought:
    """The parts of a message that clients don't see; `calls` are those of its calls, in order."""

    reasoning: str = ""
    extra: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    calls: tuple[Mapping[str, JsonObject], ...] = ()

    @classmethod
    def of(cls, message: Message) -> "Thought":
        """The parts of a message."""
        calls = tuple(call.extra for call in message.tool_calls)
        return cls(message.reasoning, message.extra, calls)

    def restored(self, message: Message) -> Message:
        """The message with these parts."""
        calls = list(message.tool_calls)
        for index, extra in enumerate(self.calls[: len(calls)]):
            calls[index] = replace(calls[index], extra=extra)
        return replace(message, reasoning=self.reasoning, extra=self.extra, tool_calls=tuple(calls))


def signature(seal: Seal, message: Message) -> str:
    """The word for a message, "" if it has nothing that must come back."""
    thought = Thought.of(message)
    if not (thought.reasoning or thought.extra or any(thought.calls)):
        return ""
    data = {
        "reasoning": thought.reasoning,
        "extra": dict(thought.extra),
        "calls": [dict(extra) for extra in thought.calls],
    }
    return seal.wrap(_PURPOSE, to_json(data))


def thought_of(seal: Seal, word: str) -> Thought | None:
    """What a word of `signature` holds, None for any other word."""
    try:
        data = cast(JsonObject, json.loads(seal.unwrap(_PURPOSE, word)))
    except SealError:
        return None
    return Thought(data["reasoning"], data["extra"], tuple(data["calls"]))

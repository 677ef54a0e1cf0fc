"""Reasoning as clients keep it: signed when it leaves, checked when it comes back.

A signature carries the reasoning itself where the answer leaves it out. A `redacted_thinking` block
carries what a provider wants back unchanged with the message.
"""

import json
from dataclasses import replace

from shepherd.messages import Message
from shepherd.server.seal import Seal, SealError

_VISIBLE = "anthropic thinking"
_HIDDEN = "anthropic hidden thinking"
_EXTRA = "anthropic extra"


class Thoughts:
    """Signs and checks the reasoning of answers."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def signature(self, text: str, *, hidden: bool = False) -> str:
        """The signature of reasoning; `hidden`: it carries the text."""
        return self._seal.wrap(_HIDDEN, text) if hidden else self._seal.sign(_VISIBLE, text)

    def text(self, text: str, signature: str) -> str:
        """The reasoning of a `thinking` block; raises ValueError if it is not ours."""
        if self._seal.verify(_VISIBLE, text, signature):
            return text
        hidden = self._seal.unwrap(_HIDDEN, signature)
        if text not in ("", hidden):
            raise SealError("the text was changed")
        return hidden

    def redacted(self, message: Message) -> str:
        """The data of a `redacted_thinking` block for the extras of a message, "" if it has none.

        Extras are what a provider wants back unchanged with a message and with its calls.
        """
        calls = {call.id: dict(call.extra) for call in message.tool_calls if call.extra}
        if not message.extra and not calls:
            return ""
        extras = {"message": dict(message.extra), "calls": calls}
        return self._seal.wrap(_EXTRA, json.dumps(extras))

    def with_extras(self, message: Message, data: str) -> Message:
        """The message with the extras in the data of its block; raises ValueError."""
        extras = json.loads(self._seal.unwrap(_EXTRA, data))
        calls = (
            replace(call, extra=extras["calls"].get(call.id, {})) for call in message.tool_calls
        )
        return replace(message, extra=extras["message"], tool_calls=tuple(calls))

"""What an upstream is to say, in no language yet, and what somebody made of it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from shepherd.messages import JsonObject, Message


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: a thought, text in these pieces, and calls of tools with their arguments.

    `held`: the upstream says all of it but the end, and keeps the connection.
    """

    thought: str = ""
    text: tuple[str, ...] = ()
    calls: tuple[tuple[str, JsonObject], ...] = ()
    held: bool = False

    @property
    def silent(self) -> "Said":
        """The same of who does not tell its thoughts."""
        return replace(self, thought="")

    @property
    def content(self) -> str:
        return "".join(self.text)


@dataclass(frozen=True, slots=True)
class Understood:
    """An answer as a client has it in the end."""

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, JsonObject], ...] = ()

    @classmethod
    def of(cls, message: Message) -> "Understood":
        calls = tuple((call.name, call.arguments) for call in message.tool_calls)
        return cls(message.content, message.reasoning, calls)

    @classmethod
    def from_texts(cls, text: str, thought: str, calls: Iterable[Sequence[str]]) -> "Understood":
        """Of calls whose arguments are JSON."""
        return cls(text, thought, tuple((name, json.loads(given)) for name, given in calls))


PROMPT_TOKENS, COMPLETION_TOKENS = 20, 9
"""What upstreams count, whatever was said."""

HELLO = Said(text=("Zwö", "lf 🐑."))
AFTER = Said(text=("Well", "."))
UNICODE = Said(text=("e\u0301🐑", "👩‍👩‍👧 שלום", " 日本 \u2028\u00a0ﬁ", "\U0010ffff."))
ONE_CALL = Said(text=("I look.",), calls=(("read_file", {"path": "Köln"}),))
THOUGHT = Said("Hm 🐑.", ("Zwö", "lf."))
TWO_CALLS = (("read_file", {"path": "ä"}), ("read_file", {"path": "b"}))
WHOLE = Said("Hm 🐑.", ("Zwö", "lf."), TWO_CALLS)
SHORT = Said("🐑.", ("ö.",), (("read_file", {"path": "ä"}),))
"""All kinds of things, for recordings that are cut at every byte."""

"""Events as rows of four texts, which are short to record and to compare."""

import json
from typing import NamedTuple

from shepherd.events import (
    KINDS,
    CallbackEvent,
    CodeBlock,
    Event,
    Failure,
    Notice,
    PlanUpdate,
    PrefillProgress,
    Stats,
    Stop,
    Text,
    Thinking,
    ToolResult,
    UserPrompt,
)
from shepherd.messages import ToolCall

TEXT_KINDS = frozenset({CallbackEvent.CONTENT, CallbackEvent.THINKING, CallbackEvent.CODEBLOCK})


class Flat(NamedTuple):
    """An event: its kind, its text, and what names it."""

    kind: CallbackEvent
    content: str
    name: str = ""
    id: str = ""


def flat(event: Event) -> Flat:
    """The event as a row."""
    return Flat(KINDS[type(event)], *_texts(event))


def _texts(event: Event) -> tuple[str, ...]:
    match event:
        case PrefillProgress() | PlanUpdate():
            return _texts(event.notice)
        case CodeBlock(text=text, language=name):
            texts = (text, name)
        case Text(text=text) | Thinking(text=text) | UserPrompt(text=text):
            texts = (text,)
        case ToolCall(id=id, name=name):
            texts = (event.arguments_json, name, id)
        case ToolResult(id=id, name=name, text=text) | Notice(text=text, topic=name, id=id):
            texts = (text, name, id)
        case Failure(message=text, error=name):
            texts = (text, name)
        case Stop(reason=reason):
            texts = (reason.value,)
        case Stats(provider=name, id=id):
            texts = (json.dumps(event.measures()), name, id)
    return texts

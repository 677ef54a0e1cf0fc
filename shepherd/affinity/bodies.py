"""The prompt in the JSON body of a request, in any of the server's APIs."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from shepherd.affinity.prefix import Prefix, prefix_of

_OPENING = ("model", "tools", "functions", "system", "instructions", "systemInstruction")
_OPENING_SNAKE = "system_instruction"
_MESSAGES = ("messages", "input", "contents", "prompt")
_SYSTEM_ROLES = ("system", "developer")
_PREVIOUS = "previous_response_id"
_MOVING = "cache_control"
"""A mark of Anthropic's API that clients move to the newest message; the text stays the same."""


def body_prefix(body: object) -> Prefix:
    """The prefix of a request's body, parsed from JSON; an empty one if it holds no prompt.

    Chat completions, completions, Responses, Messages, Gemini's and Ollama's requests are known.
    A body that continues a stored response begins with the last block of `with_response`.
    Parameters of sampling don't count. Never raises for the content of a body.
    """
    if not isinstance(body, dict):
        return Prefix()
    values = cast(Mapping[str, object], body)
    messages = [message for name in _MESSAGES for message in _items(values.get(name))]
    previous = values.get(_PREVIOUS)
    if isinstance(previous, str) and previous and "messages" not in values:
        return _chain([], [_response_text(previous)], messages)
    shared = 0
    while shared < len(messages) and _role(messages[shared]) in _SYSTEM_ROLES:
        shared += 1
    if not messages:
        return Prefix()
    fields = [values[name] for name in (*_OPENING, _OPENING_SNAKE) if values.get(name)]
    return _chain([*fields, *messages[:shared]], [], messages[shared:])


def with_response(prefix: Prefix, id: str) -> Prefix:
    """The prefix with one more block, which stands for the whole conversation up to a response.

    A request that continues the response holds only its id and what is new.
    """
    block = prefix_of([], [_response_text(id)]).hashes[-1]
    end = prefix.ends[-1] if prefix.ends else 0
    return replace(prefix, hashes=(*prefix.hashes, block), ends=(*prefix.ends, end))


def _response_text(id: str) -> str:
    """Unlike any canonical text, which begins as JSON does."""
    return f"response {id}"


def _chain(opening: list[object], texts: list[str], messages: list[object]) -> Prefix:
    try:
        beginning = [canonical(value) for value in opening]
        return prefix_of(beginning, [*texts, *map(canonical, messages)])
    except RecursionError:  # nested as no client nests
        return Prefix()


def canonical(value: object) -> str:
    """The JSON text of a value: the same for the same content, whatever the order of its keys."""
    text = _dump(value)
    return _dump(_without_marks(value)) if _MOVING in text else text


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _items(value: object) -> Iterator[object]:
    if isinstance(value, list):
        yield from cast(list[object], value)
    elif value:
        yield value


def _role(message: object) -> object:
    return cast(Mapping[str, object], message).get("role") if isinstance(message, dict) else None


def _without_marks(value: object) -> object:
    if isinstance(value, dict):
        pairs = cast(Mapping[str, object], value).items()
        return {name: _without_marks(part) for name, part in pairs if name != _MOVING}
    if isinstance(value, list):
        return [_without_marks(part) for part in cast(list[object], value)]
    return value

"""A prompt as a chain of hashes, so that beginnings are compared without a tokenizer."""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

BLOCK_CHARACTERS = 1024
"""The maximum of characters that one hash stands for; a part of a prompt begins a new block."""

_HASH_BYTES = 8

_OPENING = ("model", "tools", "functions", "system", "instructions", "systemInstruction")
_OPENING_SNAKE = "system_instruction"
_MESSAGES = ("messages", "input", "contents", "prompt")
_SYSTEM_ROLES = ("system", "developer")
_PREVIOUS = "previous_response_id"
_MOVING = "cache_control"
"""A mark of Anthropic's API that clients move to the newest message; the text stays the same."""


class Prefix(Struct, frozen=True):
    """A prompt in blocks: each hash stands for the whole prompt up to the end of its block.

    `ends` runs parallel to `hashes` and counts the characters up to there. The first `opening`
    blocks are the system message and the tools, which many conversations share. `key` stands for
    them and the first message, so it stays the same when messages are added.
    """

    hashes: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    opening: int = 0
    key: int = 0


def prefix_of(
    opening: Iterable[str], messages: Iterable[str], block_characters: int = BLOCK_CHARACTERS
) -> Prefix:
    """The chain of a prompt that consists of these texts, in this order.

    A text that is the same must be written in the same way in each request. The last block of a
    text may be shorter, so that a chain stays a beginning of the chain with more messages.
    """
    chain = _Chain(block_characters)
    chain.extend(opening)
    shared = len(chain.hashes)
    rest = iter(messages)
    chain.extend(islice(rest, 1))
    key = chain.hashes[-1] if chain.hashes else 0
    chain.extend(rest)
    return Prefix(tuple(chain.hashes), tuple(chain.ends), shared, key)


class _Chain:
    """Hashes under construction."""

    def __init__(self, block_characters: int) -> None:
        self.hashes: list[int] = []
        self.ends: list[int] = []
        self._size = block_characters
        self._digest = b""
        self._end = 0

    def extend(self, texts: Iterable[str]) -> None:
        """Append the blocks of texts; an empty text has one, too."""
        for text in texts:
            for block in self._blocks(text):
                self._append(block)

    def _blocks(self, text: str) -> Iterator[str]:
        return (text[i : i + self._size] for i in range(0, max(len(text), 1), self._size))

    def _append(self, block: str) -> None:
        data = block.encode("utf-8", "surrogatepass")
        self._digest = blake2b(self._digest + data, digest_size=_HASH_BYTES).digest()
        self._end += len(block)
        self.hashes.append(int.from_bytes(self._digest))
        self.ends.append(self._end)


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

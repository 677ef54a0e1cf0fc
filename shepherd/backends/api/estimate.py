"""Estimates the tokens of a prompt if only the provider has the tokenizer.

The last usage of a conversation counts what was sent, and an average over the usages so far, of
tokens for the length of a text, estimates what is new.
"""

import json
import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shepherd.images import Image
from shepherd.messages import Message, ToolSpec
from shepherd.session import Session

BYTES_PER_TOKEN = 4
"""Of UTF-8, until the first usage; tokens of all scripts are about equally long in it."""

FRAME = 4
"""The tokens around each message and each call."""

PIXELS_PER_TOKEN = 750
MAX_IMAGE_TOKENS = 1600
"""An image of unknown size takes as many."""

FOLLOWING = 0.9
"""The weight of the earlier usages in the average shrinks by this factor with each new one."""

MAX_FACTOR = 32.0
"""A usage that is off by more than this factor teaches nothing: no tokenizer is so different."""

MAX_PROMPTS = 512
"""Prompts whose exact size is remembered, by a hash of their texts."""

RECENT = 10
"""The error is the mean over this number of recent usages."""


class _Part(NamedTuple):
    """A message, or everything before the first; `mark` is a hash of the prompt up to its end.

    `text` are the tokens of its texts if `BYTES_PER_TOKEN` were right.
    """

    mark: int
    text: float
    images: int


class TokenEstimator:
    """Counts the tokens of one model's prompts.

    Messages are recognised by their content, so one estimator serves many conversations.
    """

    def __init__(self) -> None:
        self._prompts: OrderedDict[int, int] = OrderedDict()
        self._errors: deque[float] = deque(maxlen=RECENT)
        self._counted_tokens = self._plain_tokens = 0.0

    @property
    def error(self) -> float | None:
        """The mean relative error of the last estimates of whole prompts; None before the first."""
        return sum(self._errors) / len(self._errors) if self._errors else None

    def estimate(self, session: Session) -> int:
        """The tokens of the session's prompt; exact for one whose usage was learned."""
        parts = _parts(session)
        known_parts, known_tokens = self._known_beginning(parts)
        return round(known_tokens + self._estimate(parts[known_parts:]))

    def estimate_message(self, message: Message) -> int:
        """The tokens that `message` takes in a prompt; at least 1."""
        return max(1, round(self._estimate([_part(message, mark_before=0)])))

    def learn(self, session: Session, prompt_tokens: int) -> None:
        """Learn the count of the session as it was sent.

        The count of an overflow error can be learned too. Call this before anything is added to the
        session.
        """
        if prompt_tokens <= 0:
            return
        parts = _parts(session)
        known_parts, known_tokens = self._known_beginning(parts)
        guess = known_tokens + self._estimate(parts[known_parts:])
        self._errors.append(abs(guess - prompt_tokens) / prompt_tokens)
        if known_tokens > prompt_tokens:  # the vendor counts otherwise than before
            known_parts, known_tokens = 0, 0
        new = parts[known_parts:]
        # Vendors count images too differently: such a usage says nothing about the text beside.
        if not any(part.images for part in new):
            self._follow(sum(part.text for part in new), prompt_tokens - known_tokens)
        self._prompts[parts[-1].mark] = prompt_tokens
        self._prompts.move_to_end(parts[-1].mark)
        if len(self._prompts) > MAX_PROMPTS:
            self._prompts.popitem(last=False)

    def _follow(self, text: float, tokens: int) -> None:
        """Move the average to a text that was estimated as `text` tokens and has `tokens`."""
        if text and 1 / MAX_FACTOR < tokens / text < MAX_FACTOR:
            self._counted_tokens = FOLLOWING * self._counted_tokens + tokens
            self._plain_tokens = FOLLOWING * self._plain_tokens + text

    def _estimate(self, parts: Iterable[_Part]) -> float:
        """The tokens of these parts, by the average of the usages so far."""
        ratio = self._counted_tokens / self._plain_tokens if self._plain_tokens else 1.0
        return sum(ratio * part.text + part.images for part in parts)

    def _known_beginning(self, parts: Sequence[_Part]) -> tuple[int, int]:
        """The number of parts that an earlier usage counted, and that usage; (0, 0) if none."""
        for index in range(len(parts), 0, -1):  # the longest beginning first
            tokens = self._prompts.get(parts[index - 1].mark)
            if tokens is not None:
                return index, tokens
        return 0, 0


def _parts(session: Session) -> list[_Part]:
    """The prompt's beginning and its messages."""
    texts = session.system_message, _tools_text(session.tools)
    parts = [_Part(hash(texts), _plain_tokens(texts), 0)]
    for message in session.messages:
        parts.append(_part(message, parts[-1].mark))
    return parts


def _part(message: Message, mark_before: int) -> _Part:
    """The part of a message; its mark also covers all parts before, by the last one's mark."""
    calls = [text for call in message.tool_calls for text in (call.name, call.arguments_json)]
    texts = (message.content, message.reasoning, *calls)
    mark = hash((mark_before, message.role, message.tool_call_id, texts, message.images))
    frames = FRAME * (1 + len(message.tool_calls))
    return _Part(mark, frames + _plain_tokens(texts), sum(map(_image_tokens, message.images)))


def _plain_tokens(texts: Iterable[str]) -> float:
    """The tokens of the texts if each had `BYTES_PER_TOKEN` bytes."""
    sizes = (len(t) if t.isascii() else len(t.encode("utf-8", "surrogatepass")) for t in texts)
    return sum(sizes) / BYTES_PER_TOKEN


def _image_tokens(image: Image) -> int:
    width, height = image.size  # (0, 0) if unknown
    tokens = math.ceil(width * height / PIXELS_PER_TOKEN)
    return min(tokens or MAX_IMAGE_TOKENS, MAX_IMAGE_TOKENS)


def _tools_text(tools: Sequence[ToolSpec]) -> str:
    """The tools about as an API writes them into the prompt."""
    if not tools:
        return ""
    return json.dumps([(t.name, t.description, t.parameters) for t in tools], ensure_ascii=False)

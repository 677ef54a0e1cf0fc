"""The differences between generations of Claude, by the model's name, and its thoughts.

A name without a version of Claude is another model behind the same API (llama.cpp's server, a
gateway). It gets the parameters that the API has always had. An unknown generation is treated like
the newest.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, cast

from msgspec import Struct

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.history import Turn
from shepherd.backends.api.parameters import BUDGETS, NONE, nearest, thinks
from shepherd.messages import JsonObject, Message, Role, ToolCall
from shepherd.session import Session


class Off(StrEnum):
    """The `thinking` that keeps a model from thinking."""

    UNSAID = ""  # it thinks only on request
    DISABLED = "disabled"
    BETWEEN_TOOLS = "between_tools"
    NEVER = "never"  # thinking can't be turned off


class Dialect(Struct, frozen=True):
    """What a model accepts; the defaults are those of a model that is not Claude.

    `adaptive`: it decides itself how much to think, and refuses a budget. `hides_thoughts`: it
    shows its thoughts only on request. `bound`: its thoughts are valid only behind exactly the same
    system prompt, tools and messages. `one_sampler`: temperature or top_p, not both.
    `forced_calls`: a request can force a call. `formats`: a request can enforce a JSON schema.
    `output_limit` is in tokens, 0 = unknown. `efforts` are those of ours that it accepts.
    """

    adaptive: bool = False
    off: Off = Off.UNSAID
    hides_thoughts: bool = False
    bound: bool = False
    sampling: bool = True
    one_sampler: bool = False
    forced_calls: bool = True
    formats: bool = False
    output_limit: int = 0
    efforts: tuple[str, ...] = ()


_NAME = re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d)")
_OLD_NAME = re.compile(r"claude-(?P<major>\d)(?:[-.](?P<minor>\d))?-(?P<family>[a-z]+)")
_PREVIEW = re.compile(r"claude-mythos-preview")

_OLD_EFFORTS = ("low", "medium", "high")


def dialect_of(model: str) -> Dialect:
    """The dialect of the model with this name, in the spelling of any of Claude's vendors."""
    if match := _NAME.search(model) or _OLD_NAME.search(model):
        version = int(match["major"]), int(match["minor"] or 0)
        return _claude(match["family"], version)
    return _claude("mythos", (5, 0)) if _PREVIEW.search(model) else Dialect()


def _claude(family: str, version: tuple[int, int]) -> Dialect:
    """The dialect of Claude, such as "opus" 4.5; the limits are the versions that changed it."""
    if version < (4, 6):
        return Dialect(
            one_sampler=version >= (4, 1),
            formats=version >= (4, 5),
            output_limit=_old_limit(family, version),
        )
    return Dialect(
        adaptive=True,
        off=_off(family, version),
        hides_thoughts=version >= (4, 7),
        bound=version >= (5, 1),
        sampling=version < (4, 7),
        one_sampler=True,
        forced_calls=version < (5, 1) or family == "haiku",
        formats=True,
        output_limit=128_000,
        efforts=("low", "medium", "high", "xhigh") if version >= (4, 7) else _OLD_EFFORTS,
    )


def _off(family: str, version: tuple[int, int]) -> Off:
    """How to turn thinking off; a newer model than those known here is assumed to always think."""
    if version < (5, 0):
        return Off.UNSAID
    known = {
        ("opus", 5, 0): Off.DISABLED,
        ("sonnet", 5, 0): Off.DISABLED,
        ("haiku", 5, 5): Off.DISABLED,
        ("sonnet", 5, 5): Off.BETWEEN_TOOLS,
    }
    return known.get((family, *version), Off.NEVER)


def _old_limit(family: str, version: tuple[int, int]) -> int:
    """The longest answer of a model before 4.6, in tokens."""
    if version < (3, 5):
        return 4096
    if version < (3, 7):
        return 8192
    return 32_000 if family == "opus" and version < (4, 5) else 64_000


# Thoughts must come back unchanged with their signatures, at their place among text and calls.
# `Message.extra["anthropic"]` holds the model that thought, and the blocks in order. Text and calls
# are in the message already, so the blocks only hold their places.

API_NAME = "anthropic"

TEXT = "text"
THINKING = "thinking"
REDACTED = "redacted_thinking"
CALL = "tool_use"

THOUGHTS = (THINKING, REDACTED)

_DATE = re.compile(r"([-@](\d{8}|latest|default))?(-v\d+(:\d+)?)?$")


def keepsake(model: str, blocks: Sequence[JsonObject]) -> JsonObject | None:
    """The part of the blocks to keep with the message; None without a signed block."""
    places = [place for place in map(_place, blocks) if place is not None]
    if not any(place["type"] in THOUGHTS for place in places):
        return None
    return {"model": model, "blocks": places}


def assistant_blocks(message: Message, model: str) -> list[JsonObject]:
    """The blocks of an answer, never an empty one; `model` "" leaves out the thoughts.

    Only thoughts of this model go back, because it can't read those of others. They also need an
    unchanged message, because they are not valid elsewhere.
    """
    blocks = _replayed(message, model) if model else None
    if blocks is None:
        blocks = [_text_block(message.content), *map(_call_block, message.tool_calls)]
    return [block for block in blocks if block is not None]


def _replayed(message: Message, model: str) -> list[JsonObject | None] | None:
    """The blocks at their places; None if there are no thoughts, or none that fit."""
    kept = message.extra.get(API_NAME, {})
    places: Any = kept.get("blocks")
    thinker = str(kept.get("model", ""))
    if not isinstance(places, list) or _plain_name(thinker) != _plain_name(model):
        return None
    calls, content = list(message.tool_calls), message.content
    blocks: list[JsonObject | None] = []
    for place in cast(list[Any], places):
        match place:
            case {"type": "text", "length": int(length)} if 0 < length <= len(content):
                blocks.append(_text_block(content[:length]))
                content = content[length:]
            case {"type": "tool_use"} if calls:
                blocks.append(_call_block(calls.pop(0)))
            case {"type": str()} if thought := _signed(cast(JsonObject, place)):
                blocks.append(thought)
            case _:
                return None
    # what is left has no place: the message was changed since
    return None if calls or content else blocks


def _plain_name(model: str) -> str:
    """The same name for one model in any vendor's spelling, with or without a date."""
    name = _DATE.sub("", model)
    return name[name.find("claude") :].replace(".", "-") if "claude" in name else name


def _place(block: JsonObject) -> JsonObject | None:
    """What to keep of a block: a thought is kept whole, of text and calls only the place."""
    match block:
        case {"type": "text", "text": str(text)} if text:
            return {"type": TEXT, "length": len(text)}
        case {"type": "tool_use"}:
            return {"type": CALL}
        case _:
            return _signed(block)


def _signed(block: JsonObject) -> JsonObject | None:
    """The block to send back, if it is a thought and signed."""
    match block:
        case {"type": "thinking", "thinking": str(text), "signature": str(signature)} if signature:
            return {"type": THINKING, "thinking": text, "signature": signature}
        case {"type": "redacted_thinking", "data": str(data)} if data:
            return {"type": REDACTED, "data": data}
        case _:
            return None


def _text_block(text: str) -> JsonObject | None:
    return {"type": TEXT, "text": text} if text.strip() else None


def _call_block(call: ToolCall) -> JsonObject:
    return {"type": CALL, "id": call.id, "name": call.name, "input": call.arguments}


BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""The value of `anthropic-beta` that lets a request say how to treat misplaced thoughts."""

MIN_BUDGET = 1024
MAX_BUDGET = 32_000


def thinking_of(
    session: Session, model: ModelTraits, dialect: Dialect, limit: int, history: Sequence[Turn]
) -> JsonObject | None:
    """The request's `thinking`, None to leave it out; `limit` is its max_tokens.

    A forced call turns thinking off if possible, because most models refuse both at once.
    """
    enabled = thinks(session, model) and model.thinking and session.tool_choice is None
    if not dialect.adaptive:
        if not enabled or not _may_continue_thinking(history, model.id):
            return None
        maximum = session.thinking_budget or BUDGETS.get(model.effort, MAX_BUDGET)
        return _budget(limit, maximum)
    if enabled or dialect.off is Off.NEVER:
        return _adaptive(dialect, visible=enabled)
    return {"type": dialect.off.value} if dialect.off is not Off.UNSAID else None


def keeps_thoughts(thinking: JsonObject | None) -> bool:
    """Whether this `thinking` allows the use of thoughts in the history."""
    return thinking is not None and thinking["type"] in ("enabled", "adaptive")


def effort_of(model: ModelTraits, dialect: Dialect) -> str:
    """The `effort` that the model accepts, "" to leave it out."""
    # without thoughts there is no effort; a model that always thinks gets its lowest one
    is_off = model.effort == NONE and dialect.off is not Off.NEVER
    if is_off or not (model.effort and model.thinking and dialect.efforts):
        return ""
    return nearest(model.effort, dialect.efforts)


def _budget(limit: int, maximum: int) -> JsonObject | None:
    """Up to half of the limit for thoughts; None if that is too little."""
    budget = min(limit // 2, maximum)
    return {"type": "enabled", "budget_tokens": budget} if budget >= MIN_BUDGET else None


def _adaptive(dialect: Dialect, *, visible: bool) -> JsonObject:
    """The `thinking` of a model that decides itself how much to think."""
    thinking: JsonObject = {"type": "adaptive"}
    if dialect.hides_thoughts:
        thinking["display"] = "summarized" if visible else "omitted"
    if dialect.bound:
        # Eviction may change the messages before a thought; then it must not be an error.
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return thinking


def _may_continue_thinking(history: Sequence[Turn], model: str) -> bool:
    """Whether the rounds of tools at the end, if any, began with a thought of this model.

    With a budget, the API refuses to continue thinking otherwise.
    """
    first_round: Turn | None = None
    for turn in reversed(history):
        if turn.role is Role.ASSISTANT:
            first_round = turn
        elif turn.messages[0].role is not Role.TOOL:  # the user's prompt begins the rounds
            break
    if first_round is None:
        return True
    return assistant_blocks(first_round.messages[0], model)[0]["type"] in THOUGHTS

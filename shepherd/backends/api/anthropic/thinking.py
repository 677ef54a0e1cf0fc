"""Decides whether and how a model should think."""

from collections.abc import Sequence

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.anthropic.dialect import Dialect, Off
from shepherd.backends.api.anthropic.replay import THOUGHTS, assistant_blocks
from shepherd.backends.api.history import Turn
from shepherd.backends.api.parameters import BUDGETS, NONE, nearest, thinks
from shepherd.messages import JsonObject, Role
from shepherd.session import Session

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
        maximum = session.thinking_budget or BUDGETS.get(model.effort, MAX_BUDGET)
        return _budget(limit, maximum) if enabled and _unbroken(history, model.id) else None
    if enabled or dialect.off is Off.NEVER:
        return _adaptive(dialect, visible=enabled)
    return {"type": dialect.off.value} if dialect.off else None


def keeps_thoughts(thinking: JsonObject | None) -> bool:
    """Whether this `thinking` allows the use of thoughts in the history."""
    return thinking is not None and thinking["type"] in ("enabled", "adaptive")


def effort_of(model: ModelTraits, dialect: Dialect) -> str:
    """The `effort` that the model accepts, "" to leave it out."""
    silent = model.effort == NONE and dialect.off is not Off.NEVER
    if silent or not (model.effort and model.thinking and dialect.efforts):
        return ""
    return nearest(model.effort, dialect.efforts)


def _budget(limit: int, maximum: int) -> JsonObject | None:
    """Up to half of the limit for thoughts; None if that is too little."""
    budget = min(limit // 2, maximum)
    return {"type": "enabled", "budget_tokens": budget} if budget >= MIN_BUDGET else None


def _adaptive(dialect: Dialect, *, visible: bool) -> JsonObject:
    """Eviction may change the messages before a thought; the API then drops it without an error."""
    thinking: JsonObject = {"type": "adaptive"}
    if dialect.hides_thoughts:
        thinking["display"] = "summarized" if visible else "omitted"
    if dialect.bound:
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return thinking


def _unbroken(history: Sequence[Turn], model: str) -> bool:
    """Whether the rounds of tools at the end, if any, began with a thought of this model.

    With a budget, the API refuses to continue thinking otherwise.
    """
    first: Turn | None = None
    for turn in reversed(history):
        if turn.role is Role.ASSISTANT:
            first = turn
        elif turn.messages[0].role is not Role.TOOL:
            break
    return first is None or assistant_blocks(first.messages[0], model)[0]["type"] in THOUGHTS

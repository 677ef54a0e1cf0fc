"""Whether and how a model is asked to think."""

from collections.abc import Sequence

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.anthropic.dialect import Dialect, Off
from shepherd.backends.api.anthropic.replay import THOUGHTS, assistant_blocks
from shepherd.backends.api.history.normalise import Turn
from shepherd.backends.api.parameters import BUDGETS, NONE, nearest, thinks
from shepherd.messages import JsonObject, Role
from shepherd.session import Session

BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""The value of `anthropic-beta` that lets a request say what becomes of thoughts out of place."""

MIN_BUDGET = 1024
MAX_BUDGET = 32_000


def thinking_of(
    session: Session, model: ModelTraits, dialect: Dialect, limit: int, said: Sequence[Turn]
) -> JsonObject | None:
    """The request's `thinking`, None to leave it out; `limit` is its max_tokens.

    A model that is made to call a tool does not think first where that can be helped, since most
    refuse both at once.
    """
    wanted = thinks(session, model) and model.thinking and session.tool_choice is None
    if not dialect.adaptive:
        most = BUDGETS.get(model.effort, MAX_BUDGET)
        return _budget(limit, most) if wanted and _unbroken(said, model.id) else None
    if wanted or dialect.off is Off.NEVER:
        return _adaptive(dialect, shown=wanted)
    return {"type": dialect.off.value} if dialect.off else None


def keeps_thoughts(thinking: JsonObject | None) -> bool:
    """Whether a request's `thinking` is such that thoughts in the history are of use."""
    return thinking is not None and thinking["type"] in ("enabled", "adaptive")


def effort_of(model: ModelTraits, dialect: Dialect) -> str:
    """The `effort` that the model knows, "" to leave it out."""
    silent = model.effort == NONE and dialect.off is not Off.NEVER
    if silent or not (model.effort and model.thinking and dialect.efforts):
        return ""
    return nearest(model.effort, dialect.efforts)


def _budget(limit: int, most: int) -> JsonObject | None:
    """Up to half of the limit for thoughts; None if that is too little to think in."""
    budget = min(limit // 2, most)
    return {"type": "enabled", "budget_tokens": budget} if budget >= MIN_BUDGET else None


def _adaptive(dialect: Dialect, *, shown: bool) -> JsonObject:
    """Eviction changes what stood before a thought; the API then drops it instead of refusing."""
    thinking: JsonObject = {"type": "adaptive"}
    if dialect.hides_thoughts:
        thinking["display"] = "summarized" if shown else "omitted"
    if dialect.bound:
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return thinking


def _unbroken(said: Sequence[Turn], model: str) -> bool:
    """Whether the rounds of tools at the end, if any, began with a thought of this model.

    With a budget the API refuses to think on where it did not begin so.
    """
    first: Turn | None = None
    for turn in reversed(said):
        if turn.role is Role.ASSISTANT:
            first = turn
        elif turn.messages[0].role is not Role.TOOL:
            break
    return first is None or assistant_blocks(first.messages[0], model)[0]["type"] in THOUGHTS

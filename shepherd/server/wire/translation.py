"""What the translators of several APIs share; `where` is a field under an API's own name.

Everything that refuses a request raises ApiError.
"""

from collections.abc import Sized

from shepherd.backends.base import ModelInfo
from shepherd.config.section import Effort
from shepherd.server.errors import invalid
from shepherd.server.wire.fields import MAX_TOKENS


def check_images(images: Sized, model: ModelInfo, where: str) -> None:
    """Refuse images that the model can't see."""
    if images and model.vision is False:
        reason = f"images are not supported: {model.id} reads text only; leave them out"
        raise invalid(where, reason)


def choice_count(requested: int | None, maximum: int, where: str) -> int:
    """How many answers are requested; 1 if the request does not say."""
    count = requested or 1
    if count > maximum:
        raise invalid(where, f"must be at most {maximum} here (server.max_choices), got {count}")
    return count


def logprob_count(
    *,
    requested: bool | None,
    top: int | None,
    where: str = "top_logprobs",
    switch: str = "logprobs",
) -> int | None:
    """How many of the likeliest tokens are reported, None for no log probabilities at all."""
    if top and not requested:
        raise invalid(where, f"{switch} must be true with it")
    return (top or 0) if requested else None


def token_limit(requested: int | None, default: int) -> int:
    """The maximum of generated tokens; 0, or a negative one, is as many as fit."""
    return min(max(default if requested is None else requested, 0), MAX_TOKENS)


def effort_named(name: str | None) -> str:
    """The effort of this name in any case; "" for `none` and for names that are unknown."""
    lower = (name or "").lower()
    effort = Effort.XHIGH if lower == "max" else lower
    return effort if effort in set(Effort) - {Effort.NONE} else ""


def token_budget(requested: int | None) -> int | None:
    """The limit of reasoning in tokens; None, or a negative one, is no limit."""
    return None if requested is None or requested < 0 else requested

"""What the translators of several APIs share; `where` is a field under an API's own name.

Everything that refuses a request raises ApiError.
"""

from collections.abc import Sized
from typing import cast

from shepherd.backends.base import ModelInfo
from shepherd.config.choices import Effort
from shepherd.messages import JsonObject
from shepherd.server.errors import invalid
from shepherd.server.wire.fields import MAX_TOKENS
from shepherd.structure import OutputFormat


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


_NAMES = {"max": Effort.XHIGH}


def effort_named(name: str | None) -> str:
    """The effort of this name in any case; "" for `none` and for names that are unknown."""
    lower = (name or "").lower()
    effort = _NAMES.get(lower, lower)
    return effort if effort in set(Effort) - {Effort.NONE} else ""


def plain_format(grammar: str | None, schema: object) -> OutputFormat | None:
    """The format of `grammar` or of `json_schema`, None for free text; raises ApiError."""
    if schema is None:
        return OutputFormat(grammar=grammar) if grammar else None
    if grammar:
        raise invalid("json_schema", "not with a grammar")
    if not isinstance(schema, dict):
        raise invalid("json_schema", "must be an object")
    return OutputFormat(cast(JsonObject, schema))

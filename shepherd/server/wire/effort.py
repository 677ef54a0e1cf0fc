"""How much a model should reason, as requests say it."""

from shepherd.config.choices import Effort

_NAMES = {"max": Effort.XHIGH}


def effort_named(name: str | None) -> str:
    """The effort of this name in any case; "" for `none` and for names that are unknown."""
    lower = (name or "").lower()
    effort = _NAMES.get(lower, lower)
    return effort if effort in set(Effort) - {Effort.NONE} else ""

"""The two lines below the greeting of somebody's first session."""

from pathlib import Path

from shepherd.config.choices import ApproveMode
from shepherd.conversation.commands.present import MODE_TEXT
from shepherd.models import BUILTIN_NAME


def is_newcomer(sessions: Path) -> bool:
    """Whether no session was saved yet."""
    return next(sessions.glob("*.jsonl"), None) is None


def welcome(model: str, mode: ApproveMode) -> tuple[str, str]:
    """The model and its limits, and how to begin."""
    if model == BUILTIN_NAME:
        first = "You talk to Pup, a small built-in model for short tasks. /model has others."
    else:
        first = f"You talk to {model}. The last line shows how full its context is."
    promise = "You are asked before anything is changed or run."
    rule = promise if mode is ApproveMode.ASK else MODE_TEXT[mode]
    return first, f"@ adds a file, Esc stops. {rule}"

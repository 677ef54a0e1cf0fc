"""The approval modes as modes of a session."""

from acp.schema import SessionMode, SessionModeState

from shepherd.config.choices import ApproveMode
from shepherd.conversation.conversation import Conversation

_DESCRIPTIONS = {
    "ask": "What no rule allows is asked about.",
    "edits": "Changes to files in the working directory run without asking.",
    "auto": "Changes to files in the working directory and commands in the sandbox run without "
    "asking.",
    "all": "Everything that no rule denies runs without asking.",
    "none": "What would be asked about is refused.",
    "plan": "Nothing is changed; the model works out a plan.",
}


def mode_state(conversation: Conversation) -> SessionModeState:
    """All modes, and the current one."""
    modes = [
        SessionMode(id=mode.value, name=mode.value.capitalize(), description=_text(mode))
        for mode in ApproveMode
    ]
    return SessionModeState(current_mode_id=conversation.policy.mode.value, available_modes=modes)


def _text(mode: ApproveMode) -> str | None:
    return _DESCRIPTIONS.get(mode.value)

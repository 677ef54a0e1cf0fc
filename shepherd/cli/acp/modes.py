"""The approval modes as modes of a session."""

from acp.schema import SessionMode, SessionModeState

from shepherd.config.choices import ApproveMode
from shepherd.conversation.commands.present import MODE_TEXT
from shepherd.conversation.conversation import Conversation


def mode_state(conversation: Conversation) -> SessionModeState:
    """All modes, and the current one."""
    modes = [
        SessionMode(id=mode.value, name=mode.value.capitalize(), description=MODE_TEXT[mode])
        for mode in ApproveMode
    ]
    return SessionModeState(current_mode_id=conversation.policy.mode.value, available_modes=modes)

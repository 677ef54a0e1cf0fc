"""Changes the approval mode of a conversation, for frontends without a terminal."""

from shepherd.config.choices import ApproveMode
from shepherd.conversation.conversation import Conversation


async def set_mode(conversation: Conversation, mode: ApproveMode) -> str:
    """Change the mode; returns a sentence if it works otherwise than it says, else ""."""
    policy = conversation.policy
    policy.mode = mode
    if mode is not ApproveMode.AUTO:
        return ""
    problem = await conversation.sandbox.problem_of_auto()
    policy.has_sandbox = not problem
    return problem

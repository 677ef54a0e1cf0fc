"""What the user is told when messages leave the conversation."""

from shepherd.session import Session
from shepherd.tools.text import counted

SEARCH_TOOL = "search_memory"
"""With this tool the model finds again what left."""


def eviction_notice(session: Session, count: int) -> str:
    """The notice about the `count` oldest messages: that they left, and how they are found."""
    text = f"Context full: {counted(count, 'old message')} left the conversation."
    if session.archive is None or not session.archive.keeps:
        return text
    offered = any(tool.name == SEARCH_TOOL for tool in session.tools)
    return f"{text} Kept: {SEARCH_TOOL if offered else '`shepherd memory search`'} finds them."

"""What outlives a conversation's context: messages that left it, and facts. In SQLite."""

from shepherd.memory.memory import ConversationArchive, Memory
from shepherd.memory.records import ArchivedMessage, Counts, Fact, MemoryMatch, Place

__all__ = [
    "ArchivedMessage",
    "ConversationArchive",
    "Counts",
    "Fact",
    "Memory",
    "MemoryMatch",
    "Place",
]

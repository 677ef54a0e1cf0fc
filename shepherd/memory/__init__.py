"""The memory beyond a conversation's context: evicted messages and facts, in SQLite."""

from shepherd.memory.memory import ConversationArchive, Memory
from shepherd.memory.store import ArchivedMessage, Counts, Fact, MemoryMatch, Place

__all__ = [
    "ArchivedMessage",
    "ConversationArchive",
    "Counts",
    "Fact",
    "Memory",
    "MemoryMatch",
    "Place",
]

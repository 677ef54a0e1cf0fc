"""What outlives a conversation's context: messages that left it, and facts. In SQLite."""

from shepherd.memory.memory import ConversationArchive, Memory
from shepherd.memory.records import Counts, Fact, Found, KeptMessage, Place

__all__ = ["ConversationArchive", "Counts", "Fact", "Found", "KeptMessage", "Memory", "Place"]

"""The memory beyond a conversation's context: evicted messages and facts, in SQLite."""

"""Adapts a conversation to an API that accepts less than a session can hold."""

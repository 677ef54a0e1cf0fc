"""From a conversation to tokens."""

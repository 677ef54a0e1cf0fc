"""Frontends without a prompt: one question, pipes, JSON lines."""

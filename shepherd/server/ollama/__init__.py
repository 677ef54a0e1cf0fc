"""Ollama's wire format to and from `Session`, as pure functions."""

"""Shepherd: a terminal agent with an embedded OpenAI-compatible server."""

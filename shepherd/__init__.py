"""Shepherd: a terminal agent with an embedded OpenAI-compatible server."""

__version__ = "0.1.0"

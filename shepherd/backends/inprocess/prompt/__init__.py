"""Turns a conversation into tokens."""

"""Samples the next token."""

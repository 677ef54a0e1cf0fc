"""Parses a model's text into events, reasoning and tool calls.

Pure: text in, events out. It does not depend on models, sessions or callbacks.
"""

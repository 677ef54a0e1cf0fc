"""The question before a tool call: its text, its pages, its answers."""

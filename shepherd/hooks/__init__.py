"""Hooks: the user's commands at the start of a session, around tools, and at a turn's end."""

"""Texts that the user and the project keep for agents: instructions, skills, custom commands."""

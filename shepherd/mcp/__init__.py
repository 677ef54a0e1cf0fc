"""Servers of the Model Context Protocol: settings, processes, tools, prompts, questions."""

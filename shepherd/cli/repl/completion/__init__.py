"""Completion in the prompt: commands, files, shell commands, and the menu that shows them."""

"""Boxes for commands: they can't write outside files and can't read secrets."""

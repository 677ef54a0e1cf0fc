"""Boxes for commands, in which they can't write outside files and can't read secrets."""

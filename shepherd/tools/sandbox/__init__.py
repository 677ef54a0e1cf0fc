"""Boxes that commands run in: what is outside can't be written, secrets can't be read."""

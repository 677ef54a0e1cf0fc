"""Guesses at the next tokens, and whether they pay."""

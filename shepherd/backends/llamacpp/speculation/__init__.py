"""Guesses at the next tokens, and a test whether they pay off."""

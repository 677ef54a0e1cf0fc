"""Keeps files as they were before tools changed them, and brings them back."""

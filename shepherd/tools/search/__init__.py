"""Searching in files."""

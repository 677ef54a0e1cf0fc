"""Requests as jobs, and which of them the next batch serves."""

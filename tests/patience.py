"""How long tests wait for what is sure to come."""

PATIENCE = 60.0
"""Seconds; long, so that a busy machine fails no test."""
POLL = 0.01
"""Seconds between two looks at what a test waits for."""

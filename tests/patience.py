"""How long tests wait for what is sure to come."""

PATIENCE = 60.0
"""Seconds; long, so that a busy machine fails no test."""

"""Sixty tasks for small models as agents, with and without each aid of the turn."""

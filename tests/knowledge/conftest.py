"""Fixtures of the tests of knowledge."""

from tests.knowledge.places import places

__all__ = ["places"]

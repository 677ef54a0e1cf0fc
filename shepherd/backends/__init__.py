"""Backends turn a session into events."""

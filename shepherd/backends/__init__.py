"""Backends: what turns a session into events."""

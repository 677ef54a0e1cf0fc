"""Filters of system calls."""

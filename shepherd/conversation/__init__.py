"""Builds one conversation from settings and changes it, below every frontend."""

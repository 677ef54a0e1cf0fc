"""Readers of tool calls: one small file per format."""

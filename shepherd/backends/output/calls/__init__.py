"""Readers of tool calls: one small file per way of writing them."""

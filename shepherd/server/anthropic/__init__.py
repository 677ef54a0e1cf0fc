"""Anthropic's Messages API to and from `Session`, as pure functions."""

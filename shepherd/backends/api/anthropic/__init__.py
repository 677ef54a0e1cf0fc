"""Anthropic's Messages API: `AnthropicWire` in `wire.py`."""

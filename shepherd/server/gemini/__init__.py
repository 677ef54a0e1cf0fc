"""Google's Gemini wire format to and from `Session`, as pure functions."""

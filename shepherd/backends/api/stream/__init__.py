"""A provider's stream: from bytes to events and a message."""

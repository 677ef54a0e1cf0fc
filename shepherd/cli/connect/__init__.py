"""A terminal on a conversation of another process: `shepherd --connect URL`."""

"""The server as a service: its start and end, its state, its logs and its measurements."""

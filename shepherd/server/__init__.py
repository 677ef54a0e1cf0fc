"""The HTTP server: every API translates between its own format and a `Session`."""

"""The HTTP server: every API is a translation between its wire format and a `Session`."""

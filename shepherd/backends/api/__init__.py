"""Models behind an HTTP API: one backend for all of them, one small adapter per API."""

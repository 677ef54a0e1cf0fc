"""The shared session over HTTP."""

"""Routes, one module per API; each makes a router from the server's context."""

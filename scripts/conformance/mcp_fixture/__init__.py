"""What the conformance suite of MCP talks to: a plugin for the server, and a run of the client."""

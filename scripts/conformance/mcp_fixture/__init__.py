"""What the conformance suite of MCP asks of a server, as a plugin."""

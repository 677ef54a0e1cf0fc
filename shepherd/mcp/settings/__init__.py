"""The definitions of MCP servers: files, consent to those of projects, and secrets."""

"""Shepherd as an MCP server on stdin and stdout: its tools and its model for other agents."""

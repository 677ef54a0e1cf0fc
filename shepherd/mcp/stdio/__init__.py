"""MCP servers as processes: start in the sandbox, messages over pipes, logs."""

"""MCP servers that speak HTTP: connections, and logins with OAuth."""

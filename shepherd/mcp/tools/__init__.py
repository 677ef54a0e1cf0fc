"""Tools of MCP servers as tools of the model: names, schemas, results."""

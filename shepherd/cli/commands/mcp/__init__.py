"""`shepherd mcp`: servers of the Model Context Protocol, and Shepherd as one."""

"""The cost of a sandbox, and the programs that work inside."""

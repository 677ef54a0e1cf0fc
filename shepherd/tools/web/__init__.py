"""The HTTP tools."""

"""The agent behind the APIs: the server runs whole turns with its own tools."""

"""The interactive terminal."""

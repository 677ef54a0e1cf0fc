"""The effects of programs' arguments: reading, writing, and running other programs."""

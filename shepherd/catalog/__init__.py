"""Which models there are, and how their files get here."""

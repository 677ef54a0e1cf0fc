"""What each API key may do, its limits, and what was used with it."""

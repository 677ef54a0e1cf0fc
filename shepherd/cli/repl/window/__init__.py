"""The terminal's window: output above the live area, resizes, the title and the bell."""

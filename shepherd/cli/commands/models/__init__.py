"""`shepherd model …`."""

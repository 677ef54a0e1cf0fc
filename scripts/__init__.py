"""Programs for those who work on Shepherd."""

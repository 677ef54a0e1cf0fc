"""Programs for the development of Shepherd."""

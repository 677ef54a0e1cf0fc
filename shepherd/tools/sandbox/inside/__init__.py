"""Programs at the border of a box; they use the standard library and each other alone."""

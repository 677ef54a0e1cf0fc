"""Programs at the border of a box; they import only the standard library and each other."""

"""Side-by-side measurements; each prints a table with ratios."""

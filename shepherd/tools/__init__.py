"""Tools that a model may call, and the rules under which they run."""

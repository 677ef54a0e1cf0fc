"""Tools whose schemas stay out of the prompt until the model searches for them."""

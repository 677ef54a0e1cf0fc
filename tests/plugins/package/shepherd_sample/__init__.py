"""One plugin of each kind."""

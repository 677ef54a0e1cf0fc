"""`shepherd doctor --offline`: a day in a network with no way out, in which tries are counted."""

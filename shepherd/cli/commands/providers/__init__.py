"""`shepherd provider …`, and what the REPL's `/provider` shares with it."""

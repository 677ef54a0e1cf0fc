"""`shepherd provider …`, and the parts that the REPL's `/provider` shares."""

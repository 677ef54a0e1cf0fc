"""The client of `shepherd --cliserver`: one session on a server, seen from elsewhere."""

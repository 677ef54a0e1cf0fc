"""The models of a server: loaded on demand, unloaded when idle, by the names of requests."""

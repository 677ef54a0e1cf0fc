"""Shepherd as an application of Ray Serve: replicas of the server behind a router of prefixes."""

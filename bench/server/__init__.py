"""What others notice while one client sends a request that is a lot of work."""

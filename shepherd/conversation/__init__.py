"""One conversation put together from settings and changed, below every frontend."""

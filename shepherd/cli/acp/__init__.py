"""Shepherd in editors: an agent of the Agent Client Protocol on stdin and stdout."""

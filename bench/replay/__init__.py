"""Recorded sessions of an agent, played back to Shepherd and to other servers."""

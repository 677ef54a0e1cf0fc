"""Connections under uvicorn: strict framing, time limits, and how many there may be."""

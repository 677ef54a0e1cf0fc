"""Connections under uvicorn: strict framing, time limits, and limits of their number."""

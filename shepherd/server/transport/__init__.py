"""Connections under uvicorn: encryption, and deadlines for clients that are too slow."""

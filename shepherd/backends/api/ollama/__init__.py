"""Ollama: its own chat API, and the models that it keeps."""

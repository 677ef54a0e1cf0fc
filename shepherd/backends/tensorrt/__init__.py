"""Models in-process through TensorRT-LLM. The import does not load it."""

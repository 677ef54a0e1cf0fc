"""Models in-process through TensorRT-LLM. Importing this loads nothing of it."""

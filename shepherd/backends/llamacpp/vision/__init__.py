"""Images for models that run in-process: projectors, embeddings, and their place in a prompt."""

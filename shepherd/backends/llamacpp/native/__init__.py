"""llama.cpp through its low-level bindings: models, vocabularies, contexts."""

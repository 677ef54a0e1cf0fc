"""Models that make vectors of texts or compare texts, in-process through llama.cpp."""

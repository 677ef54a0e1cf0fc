"""Models in-process through llama.cpp. The import does not load a native library."""

from shepherd.backends.llamacpp.backend import LlamaCppBackend
from shepherd.catalog.model_files import locate_model

__all__ = ["LlamaCppBackend", "locate_model"]

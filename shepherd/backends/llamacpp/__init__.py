"""Models in-process through llama.cpp. Importing this loads no native library."""

from shepherd.backends.llamacpp.backend import LlamaCppBackend
from shepherd.backends.llamacpp.native.locate import locate_model

__all__ = ["LlamaCppBackend", "locate_model"]

"""The built-in model that ships with Shepherd."""

from pathlib import Path

BUILTIN_NAME = "pup"


def builtin_model() -> Path:
    """The file of Pup, the model that is used when no other is configured."""
    return Path(__file__).with_name("pup.gguf")

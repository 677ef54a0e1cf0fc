"""The built-in model that ships with Shepherd."""

from pathlib import Path

BUILTIN_NAME = "pup"

BUILTIN_TOOLS = frozenset(
    {
        "list_directory",
        "read_file",
        "write_file",
        "edit_file",
        "delete_file",
        "glob",
        "grep",
        "execute_command",
        "http_get",
        "http_request",
        "get_time",
        "get_date",
        "get_environment_variable",
    }
)
"""The tools that the built-in model was trained on (see `training/`)."""


def builtin_model() -> Path:
    """The file of Pup, the model that is used when no other is configured."""
    return Path(__file__).with_name("pup.gguf")

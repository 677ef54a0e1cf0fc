"""Models as users type them."""

from pathlib import Path


def model_from_user(name: str, cwd: Path) -> str:
    """A model's name as settings hold it: what is plainly a file here becomes its absolute path.

    Only what a user types is looked for in the working directory. A name from a settings file
    never is: a cloned repository could bring a file of that name.
    """
    path = Path(name).expanduser()
    is_path = path.suffix == ".gguf" or "/" in name
    return str((cwd / path).resolve()) if is_path and (cwd / path).is_file() else name

"""The packages for llama-cpp-python's server that Shepherd does not have, in a separate folder."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

NEEDED = ("pydantic-settings>=2", "python-dotenv>=1", "sse-starlette>=2", "starlette-context>=0.4")


def server_packages() -> Path:
    """The folder, created on the first call; raises RuntimeError if that fails.

    It precedes this environment's packages in the search path, so that the server runs the same
    build of llama.cpp as Shepherd.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "shepherd-bench" / f"server-{version('llama-cpp-python')}"
    if folder.exists():
        return folder
    unfinished = folder.with_name(f"{folder.name}.part")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", str(unfinished), *NEEDED],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{', '.join(NEEDED)} can't be installed: {done.stderr[-400:]}")
    unfinished.rename(folder)
    return folder

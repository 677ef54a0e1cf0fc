"""A scripted day of the agent and of the server, with the model of the package."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct, toml

from shepherd.cli.commands.offline.outside import Outside
from shepherd.cli.commands.output import show
from shepherd.errors import ToolError
from shepherd.schedule.jobs import program

_SECONDS = 120.0
_ERROR_TAIL = 400


class Day(Struct, frozen=True):
    """What is done in the day; the file explains it."""

    steps: list[str]
    work: str
    requests: dict[str, dict[str, Any]]


def check_offline() -> int:
    """Live the day where every try to connect is seen; show the tries, and return their number.

    The home is empty, but variables and plugins are this user's. Raises ToolError if a part of the
    day fails, or if tries can't be seen here.
    """
    day = toml.decode(
        files("shepherd.cli.commands.offline").joinpath("day.toml").read_bytes(), type=Day
    )
    outside = Outside()
    with tempfile.TemporaryDirectory(prefix="shepherd-offline-") as folder:
        (Path(folder) / "work").write_text(day.work, "utf-8")
        outside.enter(Path(folder))
        env = {name: text for name, text in os.environ.items() if not name.startswith("XDG_")}
        env["HOME"] = folder
        try:
            for step in day.steps:
                command = [*program(), *step.split()]
                subprocess.run(
                    command, check=True, cwd=folder, env=env, capture_output=True, timeout=_SECONDS
                )
                show(f"shepherd {step}")
            _serve(day.requests, env)
            outside.prove()
        except (subprocess.SubprocessError, httpx.HTTPError) as error:
            tail = (getattr(error, "stderr", b"") or b"").decode("utf-8", "replace")[-_ERROR_TAIL:]
            raise ToolError(f"The day failed, so it tells nothing: {error} {tail}") from error
        finally:  # a try may be why the day has failed
            tries = outside.tries()
            for text in tries:
                show(f"Tried: {text}")
    show(f"{len(tries)} connections tried.")
    return len(tries)


def _serve(requests: Mapping[str, Mapping[str, object]], env: Mapping[str, str]) -> None:
    """Ask a server by each of its APIs; raises httpx.HTTPError."""
    command = [*program(), "--server", "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=env["HOME"], env=env, stderr=pipe, text=True) as server:
        try:
            lines = iter(server.stderr or ())
            url = next((line.split()[-1] for line in lines if "Serving" in line), "")
            with httpx.Client(timeout=_SECONDS, trust_env=False) as client:
                for path, body in requests.items():
                    address = url.removesuffix("/v1") + path
                    client.post(address, json={"model": "default", **body}).raise_for_status()
                    show(f"POST {path}")
        finally:
            server.terminate()

"""The server that an agent uses: the running one of this machine, or one that ends with the agent.

The agent takes the place of this process, so that the terminal, signals and the exit code are its
own. What must end with it is left to a child, which looks whether its parent still lives.
"""

import itertools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import httpx
from msgspec import Struct
from msgspec.structs import replace

from shepherd import errors, json_text
from shepherd.cli.commands.output import note
from shepherd.cli.connect.start import KEY_VARIABLE
from shepherd.cli.serve.database import configured_database, key_store
from shepherd.config.files import make_private_directory
from shepherd.config.load import show_value
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.schedule.jobs import program
from shepherd.server.access.keys import Keys

NO_KEY = "none"
UNKNOWN_CONTEXT = 128_000

_LOOK_SECONDS = 2.0
_POLL_SECONDS = 0.2
_PATIENT_LOOKS = 50
_LOG_TAIL = 1_000
_KEY_FILE = "key"
_OWN: Mapping[str, object] = {
    "server.host": "127.0.0.1",
    "server.socket": "",
    "server.tls_cert": "",
    "server.tls_key": "",
    "server.use_tools": False,
    "server.any_model": True,  # agents ask for small models by names of their own
}
"""Settings of a server for one agent, which it reaches as simply as can be."""


class Endpoint(Struct, frozen=True):
    """What an agent needs to know of its server; `context` is that of the model in tokens."""

    url: str
    key: str
    model: str
    context: int
    is_own: bool


def find_endpoint(
    config: Config, overrides: Mapping[str, object], paths: Paths, directory: Path
) -> Endpoint:
    """The running server of the settings, or a new one, once it can answer.

    A child ends what was started for the agent, `directory` too, when this process has ended,
    whatever it is by then. Raises ModelLoadError if the new server ends before, and AccessError if
    the running one takes no key of this user.
    """
    # options that are not about the address ask for another model than the running server's
    is_special = any(not key.startswith("server.") for key in overrides)
    url, command = "" if is_special else _running_server(config), list[str]()
    if not url:
        url, command = _own_server(overrides)
    keeper = _start_keeper(directory, command, config, paths)
    for look in itertools.count():
        if _is_up(url):
            break
        if look == _PATIENT_LOOKS:
            note("shepherd: the model is still loading")
        if os.waitpid(keeper, os.WNOHANG)[0]:
            log = paths.launch_log.read_text("utf-8", "replace")[-_LOG_TAIL:].strip()
            raise errors.ModelLoadError(f"The server for the agent has ended: {log}")
        time.sleep(_POLL_SECONDS)
    key = os.environ.get(KEY_VARIABLE, "") or NO_KEY
    answer = _get(f"{url}/v1/models", key)
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        name = f"launch-{os.getpid()}"
        key = _keys(config, paths).add(name, lambda key: replace(key, note="of `shepherd launch`"))
        (directory / _KEY_FILE).write_text(name, "utf-8")
        answer = _get(f"{url}/v1/models", key)
    if not answer.is_success:
        message = f"The server at {url} takes no key of this user: give one in {KEY_VARIABLE}."
        raise errors.AccessError(message)
    model = answer.json()["data"][0]
    context = model.get("max_model_len") or UNKNOWN_CONTEXT
    return Endpoint(url, key, model["id"], context, is_own=bool(command))


def _running_server(config: Config) -> str:
    """The URL of the server of the settings; "" if none answers there."""
    section = config.server
    url = section.url(section.port, encrypted=bool(section.tls_cert))
    with suppress(httpx.HTTPError, ValueError):
        health = json_text.as_object(_get(f"{url}/health").json()) if section.port else {}
        if "backend_connected" in health and health["status"] in ("ok", "loading"):
            # a shared session is one conversation, and lists no models
            return url if _get(f"{url}/v1/models").status_code != HTTPStatus.NOT_FOUND else ""
    return ""


def _own_server(overrides: Mapping[str, object]) -> tuple[str, list[str]]:
    """The URL and the command line of a server on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = program()
    for key, value in {**overrides, **_OWN, "server.port": port}.items():
        command += ["--set", f"{key}={value if isinstance(value, str) else show_value(value)}"]
    return f"http://127.0.0.1:{port}", [*command, "--server"]


def _start_keeper(directory: Path, server: Sequence[str], config: Config, paths: Paths) -> int:
    """The id of a child that runs `server`, if there is a command line, until its parent ends.

    At its own end the child removes the directory, and the key in it.
    """
    parent = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()  # what the terminal sends is for the agent
        make_private_directory(paths.launch_log.parent)
        with paths.launch_log.open("wb") as out:
            for stream in (0, 1, 2):  # a reader of the agent's output waits for all that may write
                os.dup2(out.fileno(), stream)
        process = subprocess.Popen(server, stdin=subprocess.DEVNULL) if server else None
        while os.getppid() == parent and (process is None or process.poll() is None):
            time.sleep(_POLL_SECONDS)
        if process is not None:
            process.terminate()
            process.wait()
        if (directory / _KEY_FILE).exists():
            _keys(config, paths).remove((directory / _KEY_FILE).read_text("utf-8"))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(0)  # the parent's clean-up is not for this process


def _keys(config: Config, paths: Paths) -> Keys:
    """The keys of this user's servers; raises ConfigError."""
    return key_store(configured_database(config, os.environ), paths)


def _is_up(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return _get(f"{url}/health").is_success
    return False


def _get(url: str, key: str = "") -> httpx.Response:
    """The server's answer, never by a proxy. Raises httpx.HTTPError."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.get(url, headers=headers, timeout=_LOOK_SECONDS, trust_env=False)

"""The server that an agent uses: the running one of this machine, or one that ends with the agent.

The agent takes the place of this process, so that the terminal, signals and the exit code are its
own. What must end with it is left to a child, which looks whether its parent still lives.
"""

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
_LOG_TAIL = 1_000
_KEY_FILE = "key"
_OWN: Mapping[str, object] = {
    "server.host": "127.0.0.1",
    "server.socket": "",
    "server.tls_cert": "",
    "server.tls_key": "",
    "server.use_tools": False,
}
"""Settings of a server for one agent, which it reaches as simply as can be."""


class Endpoint(Struct, frozen=True):
    """What an agent needs to know of its server; `context` is that of the model in tokens."""

    url: str
    key: str
    model: str
    context: int

    def lacks(self, name: str) -> bool:
        """Whether the server has no model of that name, nor an alias for it."""
        return _get(f"{self.url}/v1/models/{name}", self.key).status_code == HTTPStatus.NOT_FOUND


def running_server(config: Config) -> str:
    """The URL of the server of the settings; "" if none answers there."""
    section = config.server
    url = section.url(section.port, encrypted=bool(section.tls_cert))
    with suppress(httpx.HTTPError, ValueError):
        health = json_text.as_object(_get(f"{url}/health").json()) if section.port else {}
        if "backend_connected" in health and health["status"] in ("ok", "loading"):
            # a shared session is one conversation, and lists no models
            return url if _get(f"{url}/v1/models").status_code != HTTPStatus.NOT_FOUND else ""
    return ""


def own_server(
    config: Config, overrides: Mapping[str, object], names: Sequence[str]
) -> tuple[str, list[str]]:
    """The URL and the command line of a server that answers for `names` too, on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    aliases = {**dict.fromkeys(names, "default"), **config.server.aliases}
    settings = {**overrides, **_OWN, "server.port": port, "server.aliases": aliases}
    texts = [
        f"{key}={value if isinstance(value, str) else show_value(value)}"
        for key, value in settings.items()
    ]
    options = [word for text in texts for word in ("--set", text)]
    return f"http://127.0.0.1:{port}", [*program(), *options, "--server"]


def start_keeper(directory: Path, server: Sequence[str], config: Config, paths: Paths) -> int:
    """The id of a child that runs `server`, if there is a command line.

    When this process has ended, whatever it is by then, the child ends the server and removes the
    directory and the key in it.
    """
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        _keep(parent, server, paths.launch_log)
        if (directory / _KEY_FILE).exists():
            _keys(config, paths).remove((directory / _KEY_FILE).read_text("utf-8"))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(0)  # the parent's clean-up is not for this process


def _keep(parent: int, server: Sequence[str], log: Path) -> None:
    """Run the server until the parent ends, or the server itself."""
    os.setsid()  # what the terminal sends is for the agent
    make_private_directory(log.parent)
    with log.open("wb") as out:
        for stream in (0, 1, 2):  # a reader of the agent's output waits for all that may write it
            os.dup2(out.fileno(), stream)
        process = subprocess.Popen(server, stdin=subprocess.DEVNULL) if server else None
    while os.getppid() == parent and (process is None or process.poll() is None):
        time.sleep(_POLL_SECONDS)
    if process is not None:
        process.terminate()
        process.wait()


def await_endpoint(
    url: str, keeper: int, directory: Path, config: Config, paths: Paths
) -> Endpoint:
    """The server once it can answer, with a key if it needs one.

    Raises ModelLoadError if the keeper's server ends before, and AccessError.
    """
    while not _is_up(url):
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
    return Endpoint(url, key, model["id"], model.get("max_model_len") or UNKNOWN_CONTEXT)


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

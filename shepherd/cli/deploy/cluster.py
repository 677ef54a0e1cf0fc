"""Ray on this machine, for one deployment: private, on loopback, without reports to its makers."""

import math
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shepherd.cli.deploy.arguments import DeployArguments
from shepherd.errors import ConfigError

INSTALL = "pip install 'ray[serve]'"


def check_installed() -> None:
    """Raise ConfigError, with advice, if Ray is missing."""
    if find_spec("ray") is None:
        raise ConfigError(f"Ray Serve is not installed here; run: {INSTALL}")


def ray_module(name: str = "") -> Any:
    """The module `ray.NAME`, or `ray` itself; raises ConfigError if it can't be used."""
    check_installed()
    try:
        return import_module(f"ray.{name}" if name else "ray")
    except ImportError as error:
        message = f"Ray Serve is not complete here ({error}); run: {INSTALL}"
        raise ConfigError(message) from error


LOOPBACK = "127.0.0.1"
_STORE_BYTES = 128 * 2**20
"""Ray's shared memory: requests and answers pass through it only if they are large."""

_SPARE_CPUS = 1
_TOKEN_NAME = "token"
_DIRECTORY = "r"
"""Ray opens its directory to all users; the one around it stays private."""

PREFIX = "shepherd-ray"
_MAX_BASE, _SHORT_BASE = 12, "/tmp"
_LOG_LEVEL = "WARNING"


def private_environment(home: Path) -> Mapping[str, str]:
    """The variables for Ray's programs: no usage reports, loopback, and a token for all ports."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(home / _TOKEN_NAME),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # ports on loopback, as on those systems
        "RAY_worker_niceness": "0",
        "RAY_DEDUP_LOGS": "0",
    }


@contextmanager
def local_cluster(arguments: DeployArguments, *, dashboard: bool = False) -> Generator[None]:
    """Run Ray here, and end it; its files are in a private directory, which is removed."""
    home = _private_directory()
    token = home / _TOKEN_NAME
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    os.environ.update(private_environment(home))
    ray = ray_module()  # after the variables are set, which its import may read
    needed_cpus = arguments.replica_range.maximum * arguments.cpus + arguments.routers + _SPARE_CPUS
    try:
        _start(
            ray,
            # Ray only counts them: it would wait forever for cores that the machine lacks
            num_cpus=max(os.cpu_count() or 1, math.ceil(needed_cpus)),
            include_dashboard=dashboard,
            _temp_dir=str(home / _DIRECTORY),
        )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(home, ignore_errors=True)


def _private_directory() -> Path:
    """A new directory that only this user can open; the paths of sockets in it must be short."""
    base = tempfile.gettempdir()
    if len(base) > _MAX_BASE:
        base = _SHORT_BASE
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))


def _start(ray: Any, **options: Any) -> None:
    """Start Ray on loopback with these options; raises ConfigError with Ray's reason."""
    try:
        ray.init(
            address="local",
            dashboard_host=LOOPBACK,
            _node_ip_address=LOOPBACK,
            object_store_memory=_STORE_BYTES,
            logging_level=_LOG_LEVEL,
            **options,
        )
    except Exception as error:  # a machine that is too busy is an Exception itself in Ray
        reason = str(error).strip() or type(error).__name__
        raise ConfigError(f"Ray does not start here: {reason}") from error


@contextmanager
def joined_cluster(address: str) -> Generator[None]:
    """Connect to a running cluster; raises ConfigError if there is none."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = ray_module()
    try:
        ray.init(address=address, logging_level=_LOG_LEVEL)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"The Ray cluster at {address} can't be reached: {reason}") from error
    try:
        yield
    finally:
        ray.shutdown()


def free_port(host: str) -> int:
    """A port that is free at the moment."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


def wait_for_signal() -> None:
    """Return at SIGINT or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: ended.set())
    # Python handles a signal in this thread, which sleeps on if another thread of Ray received it
    while not ended.wait(1.0):
        pass

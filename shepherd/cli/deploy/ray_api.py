"""The parts of Ray that the deployment uses, with their types; Ray itself is optional."""

from collections.abc import AsyncIterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from shepherd.errors import ConfigError

INSTALL = "pip install 'shepherd[ray]'"


class ReplicaHandle(Protocol):
    """A handle of a deployment: the methods that are called through it."""

    def options(self, *, method_name: str, stream: bool) -> "ReplicaHandle":
        """The handle with options."""
        ...

    def remote(self, *arguments: object) -> AsyncIterator[Any]:
        """Call a generator method of one replica."""
        ...

    def broadcast(self, method_name: str, *arguments: object) -> Any:
        """Call a method of all replicas."""
        ...


Application = Any
"""A deployment with its arguments."""


def check_installed() -> None:
    """Raise ConfigError, with advice, if Ray is missing."""
    if find_spec("ray") is None:
        raise ConfigError(f"Ray Serve is not installed here; run: {INSTALL}")


def ray_module(name: str) -> Any:
    """The module `ray.NAME`, or `ray` itself; raises ConfigError if it can't be used."""
    check_installed()
    try:
        return import_module(f"ray.{name}" if name else "ray")
    except ImportError as error:
        message = f"Ray Serve is not complete here ({error}); run: {INSTALL}"
        raise ConfigError(message) from error

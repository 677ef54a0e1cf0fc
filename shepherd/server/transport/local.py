"""Requests over the Unix socket."""

from starlette.types import Scope


def is_local_socket(scope: Scope) -> bool:
    """Whether a request came over the Unix socket, which only the server's user can open."""
    server = scope.get("server")
    return server is not None and server[1] is None

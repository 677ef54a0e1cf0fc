"""The server's sockets: a TCP address that is safe, and a Unix socket of the server's user."""

import errno
import os
import socket
import stat
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from shepherd.errors import ConfigError
from shepherd.server.guard import names_this_machine
from shepherd.server.settings import ServerSettings


class UnsafeAddressError(ConfigError):
    """Other machines can reach the address, and clients would not need a key."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"Refusing to listen on {host} without authentication: every machine that "
            "reaches it could use the model. Use --auth-mode json (and `shepherd apikey add "
            "NAME`), or --insecure if that is what you want."
        )


@contextmanager
def bound_sockets(
    settings: ServerSettings, *, authenticated: bool = False
) -> Generator[list[socket.socket]]:
    """All sockets of the settings, bound; raises as `bind` and `unix_socket`."""
    with ExitStack() as held:
        sockets: list[socket.socket] = []
        if settings.tcp:
            sockets.append(held.enter_context(bind(settings, authenticated=authenticated)))
        if path := settings.socket_path:
            sockets.append(held.enter_context(unix_socket(path)))
        yield sockets


def bind(settings: ServerSettings, *, authenticated: bool = False) -> socket.socket:
    """A socket bound to the address, not listening yet.

    Raises ConfigError if the address is unknown or taken, and UnsafeAddressError if other machines
    could reach it without being `authenticated`.
    """
    family, address = _resolve(settings.host, settings.port)
    if not (authenticated or settings.insecure or names_this_machine(address[0])):
        raise UnsafeAddressError(settings.host)
    # asyncio sends small parts of a stream at once only if the socket names its protocol
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise ConfigError(_problem(settings, error)) from error
    return sock


@contextmanager
def unix_socket(path: Path) -> Generator[socket.socket]:
    """A socket that listens at `path` with mode 0600; the file is removed at the end.

    The socket of a server that has ended is replaced. Raises ConfigError if a program still uses
    it, if the file is not a socket, or if it can't be made.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            _remove_stale(path)
            sock.bind(os.fspath(path))
            path.chmod(0o600)  # until `listen`, connections are refused
            sock.listen()  # at once: a server that starts beside this one must see it
            own = path.stat()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _in_use(path) from error
            problem = error.strerror or error
            message = f"The server can't listen on the socket {path}: {problem}."
            raise ConfigError(message) from error
        try:
            yield sock
        finally:
            with suppress(FileNotFoundError):
                # another server may have replaced the file
                if os.path.samestat(own, path.lstat()):
                    path.unlink()


def _remove_stale(path: Path) -> None:
    """Remove the socket of a program that has ended; raises ConfigError for anything else."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{path} is not a socket; remove it, or choose another path.")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(os.fspath(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return
    except BlockingIOError:  # its queue is full, so a program listens
        pass
    raise _in_use(path)


def _in_use(path: Path) -> ConfigError:
    return ConfigError(f"Another program uses the socket {path}; choose another path.")


def start_listening(sockets: Sequence[socket.socket], settings: ServerSettings) -> None:
    """Accept connections; raises ConfigError if another program was faster."""
    for sock in sockets:
        try:
            sock.listen()
        except OSError as error:
            raise ConfigError(_problem(settings, error)) from error


def url_of(settings: ServerSettings, sock: socket.socket, path: str = "/v1") -> str:
    """The base URL for clients of the server that listens on `sock`; for a Unix socket its path."""
    if sock.family == socket.AF_UNIX:
        return str(settings.socket_path)
    port = sock.getsockname()[1]  # port 0 of the settings is any free one
    return settings.url(port, encrypted=settings.tls is not None) + path


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The kind and the address of a host; raises ConfigError for an unknown one."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"The server can't listen on host '{host}': {error}") from error
    # an IPv4 address first: `localhost` has one of each kind, and every client can reach this one
    family, _, _, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
    return family, (str(address[0]), port)


def _problem(settings: ServerSettings, error: OSError) -> str:
    """Why the server can't have its address, with advice."""
    where = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        return f"Port {settings.port} on {settings.host} is in use; choose another with --port."
    if error.errno == errno.EACCES:
        return f"No permission to listen on {where}; ports below 1024 need a privilege."
    return f"The server can't listen on {where}: {error.strerror or error}"

"""A Unix socket that only the server's user can open."""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from shepherd.errors import ConfigError


@contextmanager
def unix_socket(path: Path) -> Generator[socket.socket]:
    """A socket bound to `path` with mode 0600, not listening yet; the file is removed at the end.

    The socket of a server that has ended is replaced. Raises ConfigError if a program still uses
    it, if the file is not a socket, or if it can't be made.
    """
    with _lock_of(path):
        _remove_stale(path)
        sock = _bound(path)
        own = path.stat()
        try:
            with sock:
                yield sock
        finally:
            with suppress(FileNotFoundError):
                if os.path.samestat(own, path.lstat()):
                    path.unlink()


@contextmanager
def _lock_of(path: Path) -> Generator[None]:
    """Hold a lock for as long as the socket is used: a server that still starts does not answer."""
    lock = path.with_name(f".{path.name}.lock")
    descriptor = _locked(lock, path)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            lock.unlink()
        os.close(descriptor)


def _locked(lock: Path, path: Path) -> int:
    """The descriptor of the lock file; raises ConfigError if another process holds it."""
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _problem(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        except FileNotFoundError:  # its last user has just removed it
            pass
        except OSError as error:
            os.close(descriptor)
            raise _in_use(path) from error
        os.close(descriptor)


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
    except OSError as error:
        raise _problem(path, error) from error
    raise _in_use(path)


def _bound(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(os.fspath(path))
        path.chmod(0o600)  # until `listen`, connections are refused
    except OSError as error:
        sock.close()
        raise _problem(path, error) from error
    return sock


def _in_use(path: Path) -> ConfigError:
    return ConfigError(f"Another program uses the socket {path}; choose another path.")


def _problem(path: Path, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return _in_use(path)
    return ConfigError(f"The server can't listen on the socket {path}: {error.strerror or error}.")

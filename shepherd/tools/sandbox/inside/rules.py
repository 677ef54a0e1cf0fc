"""Landlock: rules on files that a process can't shake off."""

import ctypes
import errno
import os
import stat

from shepherd.tools.sandbox.inside.native import call

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_FILE_RIGHTS = {0: 0, 1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_TCP = 0x3  # bind, connect
_SCOPES = 0x3  # abstract sockets, signals

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 0x1, 0x2, 0x4, 0x8
_MAKE_DEVICES = 0x40 | 0x800
READ = EXECUTE | READ_FILE | READ_DIRECTORY
WRITE = 0xFFFF & ~_MAKE_DEVICES
USE = READ_FILE | WRITE_FILE | READ_DIRECTORY | 0x8000  # devices
_OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | 0x4000 | 0x8000


def version() -> int:
    """The kernel's version of Landlock, 0 if it has none."""
    try:
        return call(_CREATE, None, 0, _VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def restrict(rights: list[tuple[str, int]], *, tcp: bool) -> None:
    """Allow only `rights` on paths to this process and its children, and no signal out.

    Without `tcp` no connection is made or taken. A path that is gone is passed over. Raises
    OSError.
    """
    abi = version()
    handled = _FILE_RIGHTS[min(abi, 5)]
    network = _TCP if abi >= 4 and not tcp else 0
    attributes = [handled, network, _SCOPES if abi >= 6 else 0]
    words = attributes[: 1 if abi < 4 else 2 if abi < 6 else 3]
    block = ctypes.create_string_buffer(b"".join(w.to_bytes(8, "little") for w in words))
    ruleset = call(_CREATE, block, 8 * len(words), 0)
    for path, allowed in rights:
        _allow(ruleset, path, allowed & handled)
    call(_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
            return
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISLNK(mode):
        os.close(descriptor)
        return
    if not stat.S_ISDIR(mode):
        allowed &= _OF_A_FILE
    rule = allowed.to_bytes(8, "little") + descriptor.to_bytes(4, "little")
    block = ctypes.create_string_buffer(rule, 12)
    call(_ADD_RULE, ruleset, _PATH_BENEATH, block, 0)
    os.close(descriptor)

"""System calls for which Python has no functions."""

import ctypes
import errno
import os
import stat
from ctypes import c_char_p, c_int, c_long, c_ulong, c_void_p

MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 0x1000, 0x2000, 0x4000, 0x40000
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 0x1, 0x2, 0x4
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SECCOMP_MODE_FILTER = 2

_AT_HERE, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_NO_LINKS = 0x4  # of `openat2`: no symbolic link on the whole path
_OPEN_TREE_CLONE = 0x1
_MOVE_DESCRIPTORS = 0x4 | 0x40  # of `move_mount`: both paths are empty
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_MAX_WORDS = 6

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.argtypes = [c_long, *[c_void_p] * _MAX_WORDS]
_libc.prctl.argtypes = [c_int, *[c_ulong] * 4]
_libc.mount.argtypes = [c_char_p, c_char_p, c_char_p, c_ulong, c_char_p]

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


def _check(result: int, step: str) -> int:
    """The result of a call; raises OSError, whose `filename` is the step, if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), step)
    return result


def call(number: int, *arguments: int | bytes | None) -> int:
    """A system call by its number. Raises OSError."""
    unused = (0,) * (_MAX_WORDS - len(arguments))
    result = _libc.syscall(number, *arguments, *unused)
    return result if result >= 0 else _check(result, f"system call {number}")


def control_process(option: int, first: int = 0, second: int = 0) -> None:
    """`prctl`. Raises OSError."""
    _check(_libc.prctl(option, first, second, 0, 0), f"prctl {option}")


def unshare(flags: int) -> None:
    """Move this process to new namespaces. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def open_exact(path: str) -> int:
    """A descriptor (`O_PATH`) for a path without links. Raises OSError."""
    flags = os.O_PATH | os.O_CLOEXEC
    how = b"".join(word.to_bytes(8, "little") for word in (flags, 0, _NO_LINKS))
    try:
        return call(_OPENAT2, _AT_HERE, os.fsencode(path), how, len(how))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def bind(source: int, target: int, attributes: int) -> None:
    """Mount what one descriptor stands for on what another one stands for. Raises OSError."""
    flags = _AT_EMPTY_PATH | _AT_RECURSIVE
    copy = call(_OPEN_TREE, source, b"", flags | _OPEN_TREE_CLONE | os.O_CLOEXEC)
    try:
        call(_MOUNT_SETATTR, copy, b"", flags, *_attributes(attributes))
        call(_MOVE_MOUNT, copy, b"", target, b"", _MOVE_DESCRIPTORS)
    finally:
        os.close(copy)


def _attributes(attributes: int) -> tuple[bytes, int]:
    """`struct mount_attr` that sets these attributes, and its size."""
    return attributes.to_bytes(32, "little"), 32


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system of a kind at `target`; empty words stand for none. Raises OSError."""
    words = [os.fsencode(text) or None for text in (source, target, kind)]
    data = os.fsencode(options) or None
    _check(_libc.mount(*words, flags, data), f"mounting {target}")


def set_mount(target: str, attributes: int) -> None:
    """Add attributes to a mount. Raises OSError."""
    call(_MOUNT_SETATTR, _AT_HERE, os.fsencode(target), 0, *_attributes(attributes))


def sync_files(descriptor: int) -> None:
    """Write all changes of a file system to its disk. Raises OSError."""
    _check(_libc.syncfs(descriptor), "syncfs")


def enter_root(target: str) -> None:
    """Make a mount the root of this namespace, and unmount the old root. Raises OSError."""
    os.chdir(target)
    # with the same directory twice, the old root lies over the new one, and can be unmounted
    call(_PIVOT_ROOT[os.uname().machine], b".", b".")
    _check(_libc.umount2(b".", MNT_DETACH), "unmounting the old root")
    os.chdir("/")


def limit_capabilities() -> None:
    """Prevent later programs of this process from gaining capabilities; it keeps its own."""
    for capability in range(_LAST_CAPABILITY):
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # one past the last capability of this kernel


def drop_capabilities() -> None:
    """Drop all capabilities. Raises OSError."""
    this_process = 0
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, this_process)
    none = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable ones, 64 bits each
    _check(_libc.capset(header, none), "capset")


def set_filter(program: bytes) -> None:
    """Install a seccomp filter; needs PR_SET_NO_NEW_PRIVS. Raises OSError."""
    code = ctypes.create_string_buffer(program, len(program))
    pointer = ctypes.addressof(code).to_bytes(8, "little")
    # struct sock_fprog: the number of instructions of 8 bytes, and a pointer at its next multiple
    header = (len(program) // 8).to_bytes(2, "little") + bytes(6) + pointer
    block = ctypes.create_string_buffer(header, 16)
    control_process(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(block))


def version() -> int:
    """The kernel's version of Landlock, 0 if it has none."""
    try:
        return call(_CREATE, None, 0, _VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def restrict(rights: list[tuple[str, int]], *, tcp: bool) -> None:
    """Allow this process and its children only `rights` on paths, and no signals to the outside.

    Without `tcp` they can't connect or accept connections. A path that does not exist, or has
    a link in it, is skipped. Raises OSError.
    """
    abi = version()
    handled = _FILE_RIGHTS[min(abi, 5)]  # later versions have no more rights on files
    # struct landlock_ruleset_attr grows with the kernel, which refuses words that it does not know
    words = [handled]
    if abi >= 4:
        words.append(0 if tcp else _TCP)
    if abi >= 6:
        words.append(_SCOPES)
    block = b"".join(word.to_bytes(8, "little") for word in words)
    ruleset = call(_CREATE, block, 8 * len(words), 0)
    for path, allowed in rights:
        _allow(ruleset, path, allowed & handled)
    call(_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    """Add a rule to a set, which refuses what no rule allows.

    A path that does not exist, or has a link in it, gets none.
    """
    try:
        descriptor = open_exact(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ELOOP):
            return
        raise
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        allowed &= _OF_A_FILE  # the kernel refuses rights that only directories have
    rule = allowed.to_bytes(8, "little") + descriptor.to_bytes(4, "little")
    call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    os.close(descriptor)

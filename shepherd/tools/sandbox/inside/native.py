"""System calls that Python has no functions for."""

import ctypes
import os

MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 0x1, 0x2, 0x4, 0x8
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SECCOMP_MODE_FILTER = 2

_AT_RECURSIVE = 0x8000
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """A system call by its number. Raises OSError."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *words), f"system call {number}")


def control_process(option: int, *arguments: int | ctypes.Array[ctypes.c_char]) -> None:
    """`prctl`. Raises OSError."""
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*arguments, 0, 0, 0, 0)]
    _check(_libc.prctl(option, *words[:4]), f"prctl {option}")


def unshare(flags: int) -> None:
    """Move this process to new namespaces. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """`mount`. Raises OSError."""
    words = [os.fsencode(text) or None for text in (source, target, kind)]
    data = os.fsencode(options) or None
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data), f"mounting {target}")


def set_mount(target: str, attributes: int, *, recursive: bool) -> None:
    """Add attributes to a mount. Raises OSError."""
    request = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    block = ctypes.create_string_buffer(bytes(request), 32)
    call(_MOUNT_SETATTR, -100, os.fsencode(target), flags, block, 32)


def enter_root(target: str) -> None:
    """Make a mount the root of this namespace, and forget the old one. Raises OSError."""
    os.chdir(target)
    call(_PIVOT_ROOT[os.uname().machine], b".", b".")
    _check(_libc.umount2(b".", MNT_DETACH), "unmounting the old root")
    os.chdir("/")


def drop_capabilities() -> None:
    """Give up every right of root, for good. Raises OSError."""
    for capability in range(_LAST_CAPABILITY):
        try:
            control_process(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # one past the last that this kernel knows
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, none), "capset")


def set_filter(program: bytes) -> None:
    """Install a seccomp filter; needs PR_SET_NO_NEW_PRIVS. Raises OSError."""
    code = ctypes.create_string_buffer(program, len(program))
    pointer = ctypes.addressof(code).to_bytes(8, "little")
    header = (len(program) // 8).to_bytes(2, "little") + bytes(6) + pointer
    control_process(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(header, 16))

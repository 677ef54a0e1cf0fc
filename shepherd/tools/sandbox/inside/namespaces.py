"""A file system, processes and a network of the command's own."""

import ctypes
import fcntl
import os
import stat
import sys

from shepherd.tools.sandbox.inside import native
from shepherd.tools.sandbox.inside.orders import sockets

_READ, _LINK = 0, 2
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "ptmx": "pts/ptmx",
    "stderr": "/proc/self/fd/2",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
}
_RESERVED_NUMBERS = 300  # that the kernel does not give a second time
_QUIET = native.MS_NOSUID | native.MS_NODEV
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41

Mounts = list[tuple[int, str, str]]
"""Kind, target and source; the kinds are those of `layout.MountKind`."""


def separate(*, network: bool) -> None:
    """Leave the namespaces of the system. Raises OSError where that is not allowed."""
    user, group = os.geteuid(), os.getegid()
    flags = native.CLONE_NEWUSER | native.CLONE_NEWNS | native.CLONE_NEWPID
    flags |= native.CLONE_NEWIPC | native.CLONE_NEWUTS
    native.unshare(flags if network else flags | native.CLONE_NEWNET)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _limit_processes(processes: str, number: int) -> None:
    """Bound the numbers of processes, which is their count.

    Before Linux 6.14 that number belongs to the whole system, and must be left alone.
    """
    release = os.uname().release.split(".")
    if (int(release[0]), int(release[1].partition("-")[0])) >= (6, 14):
        _write(processes + "/sys/kernel/pid_max", str(number + _RESERVED_NUMBERS))


def build_root(mounts: Mounts, base: str, shared_memory: int, processes: int | None) -> None:
    """Mount everything below `base`, an empty directory, and make it the root. Raises OSError."""
    native.mount("", "/", "", native.MS_REC | native.MS_PRIVATE)
    native.mount("tmpfs", base, "tmpfs", _QUIET, "mode=755,size=4m")
    for kind, target, source in mounts:
        place = base + target
        if kind == _LINK:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(source, place)
            continue
        _bind(source, place, native.ATTR_RDONLY if kind == _READ else 0)
    _mount_processes(base)
    _mount_devices(base + "/dev", shared_memory)
    os.makedirs(base + "/run", exist_ok=True)
    if processes is not None:
        _limit_processes(base + "/proc", processes)
    native.enter_root(base)
    for path in kernel_files():
        _bind(path, path, native.ATTR_RDONLY)
    for place in ("/dev", "/"):
        native.set_mount(place, native.ATTR_RDONLY, recursive=False)


def kernel_files() -> list[str]:
    """What in /proc belongs to the whole system, and would let root change it."""
    return [
        f"/proc/{name}"
        for name in sorted(os.listdir("/proc"))
        if not name.isdigit() and _changes_system(os.lstat(f"/proc/{name}").st_mode)
    ]


def _changes_system(mode: int) -> bool:
    return stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and bool(mode & 0o222))


def _bind(source: str, place: str, attributes: int, more: int = native.ATTR_NODEV) -> None:
    if not os.path.lexists(place):
        _make_place(source, place)
    native.mount(source, place, "", native.MS_BIND | native.MS_REC)
    native.set_mount(place, attributes | native.ATTR_NOSUID | more, recursive=True)


def _make_place(source: str, place: str) -> None:
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
        return
    os.makedirs(os.path.dirname(place), exist_ok=True)
    os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _mount_processes(base: str) -> None:
    os.makedirs(base + "/proc", exist_ok=True)
    native.mount("proc", base + "/proc", "proc", _QUIET | native.MS_NOEXEC)


def _mount_devices(place: str, shared_memory: int) -> None:
    os.makedirs(place, exist_ok=True)
    native.mount("tmpfs", place, "tmpfs", native.MS_NOSUID, "mode=755,size=1m")
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"{place}/{name}", 0, 0)
    for name, source in _DEVICE_LINKS.items():
        os.symlink(source, f"{place}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{place}/{name}")
    options = "newinstance,ptmxmode=0666,mode=620"
    native.mount("devpts", place + "/pts", "devpts", native.MS_NOSUID | native.MS_NOEXEC, options)
    native.mount("tmpfs", place + "/shm", "tmpfs", _QUIET, f"mode=1777,size={shared_memory}")


def raise_loopback() -> None:
    """Bring up `lo` in a new network. Raises OSError."""
    plug = sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)
    try:
        request = b"lo".ljust(16, b"\0") + _IFF_UP_RUNNING.to_bytes(2, sys.byteorder)
        fcntl.ioctl(plug.fileno(), _SIOCSIFFLAGS, request.ljust(ctypes.sizeof(ctypes.c_long) * 5))
    finally:
        plug.close()

"""Gives the command its own file system, processes and network."""

import ctypes
import fcntl
import os
import stat
import sys

from shepherd.tools.sandbox.inside import native
from shepherd.tools.sandbox.inside.orders import sockets

_READ, _WRITE, _LINK, _LAYER = 0, 1, 2, 3
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "ptmx": "pts/ptmx",
    "stderr": "/proc/self/fd/2",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
}
_RESERVED_NUMBERS = 300  # the kernel does not use lower process numbers twice
_QUIET = native.MS_NOSUID | native.MS_NODEV
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41

Mounts = list[tuple[int, str, str]]
"""Kind, target and source; the kinds are those of `layout.MountKind`."""


def separate(*, network: bool) -> None:
    """Leave the namespaces of the system, except that of mounts, which the next child needs.

    Raises OSError if that is not allowed.
    """
    flags = native.CLONE_NEWPID | native.CLONE_NEWIPC | native.CLONE_NEWUTS
    own_namespaces(flags if network else flags | native.CLONE_NEWNET)
    if not network:  # a new network has nothing that is up
        raise_interface(b"lo")


def own_namespaces(flags: int) -> None:
    """Move to new namespaces, of which this user is the owner. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    native.unshare(native.CLONE_NEWUSER | flags)
    _map_user((user, group), (user, group))


def leave_owner(user: int, group: int) -> None:
    """Become this user, in a user namespace that owns no mounts. Raises OSError."""
    native.unshare(native.CLONE_NEWUSER)
    _map_user((user, group), (0, 0))


def _map_user(inner: tuple[int, int], outer: tuple[int, int]) -> None:
    """Let one user and group inside of a new user namespace stand for one outside."""
    # without this, a user without capabilities may not map a group
    _write("/proc/self/setgroups", "deny")
    (user, group), (outer_user, outer_group) = inner, outer
    _write("/proc/self/uid_map", f"{user} {outer_user} 1")
    _write("/proc/self/gid_map", f"{group} {outer_group} 1")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _limit_processes(processes: str, number: int) -> None:
    """Limit the highest process number, and with it the number of processes.

    Before Linux 6.14 that limit belongs to the whole system, and must not be changed.
    """
    major, minor, *_ = os.uname().release.split(".")
    if (int(major), int(minor.partition("-")[0])) >= (6, 14):
        _write(processes + "/sys/kernel/pid_max", str(number + _RESERVED_NUMBERS))


class Root:
    """A root that is built in an empty directory.

    Mounts that do not depend on the command are first created beside the root. They move into
    it after all others, so that nothing covers them.
    """

    def __init__(self, place: str) -> None:
        self._base = place + "/root"
        self._processes = place + "/proc"
        self._devices = place + "/dev"
        # no mount from here on appears outside of this namespace
        native.mount("", "/", "", native.MS_REC | native.MS_PRIVATE)
        native.mount("tmpfs", place, "tmpfs", _QUIET, "mode=755,size=1m")
        os.mkdir(self._base)
        native.mount("tmpfs", self._base, "tmpfs", _QUIET, "mode=755,size=4m")

    def prepare(self, shared_memory: int, processes: int | None) -> None:
        """Mount /proc and /dev; `processes` bounds their number. Raises OSError."""
        _mount_processes(self._processes, processes)
        _mount_devices(self._devices, shared_memory)

    def enter(self, mounts: Mounts) -> None:
        """Mount the rest, and make this the root. Raises OSError."""
        base = self._base
        _add_mounts(mounts, base)
        for source, name in ((self._processes, "/proc"), (self._devices, "/dev")):
            os.makedirs(base + name, exist_ok=True)
            native.mount(source, base + name, "", native.MS_MOVE)
        os.makedirs(base + "/run", exist_ok=True)
        native.enter_root(base)
        native.set_mount("/", native.ATTR_RDONLY)


def rights_beside(mounts: Mounts) -> list[tuple[str, int]]:
    """The rights in a new file system, whose mounts already make paths read-only."""
    writable = [target for kind, target, _ in mounts if kind in (_WRITE, _LAYER)]
    places = [(path, native.WRITE) for path in (*writable, "/dev/shm")]
    system = [("/", native.READ), ("/dev", native.USE)]
    return [*system, ("/proc", native.READ | native.WRITE_FILE), *places]


def _add_mounts(mounts: Mounts, base: str) -> None:
    """Mount the sources at their targets below `base`. Raises OSError.

    What lies below the target of a layer is taken from there, so it shows the layer's changes.
    """
    layered = None
    for kind, target, source in mounts:
        if kind == _LINK:
            os.symlink(source, base + target)
        elif kind == _LAYER:
            _mount_layer(target, source, base + target)
            layered = target
        else:
            is_layered = layered is not None and (source + "/").startswith(layered + "/")
            read_only = native.ATTR_RDONLY if kind == _READ else 0
            origin = base + source if is_layered else source
            _bind(origin, base + target, native.ATTR_NODEV | read_only)


def _mount_layer(lower: str, place: str, target: str) -> None:
    """Show the directory `lower` at `target`; what changes there goes to `place`/upper.

    The descriptors stand for the paths, as a command may exchange a directory for a link.
    """
    # a new one each time, as the kernel mistrusts one that was not written to the disk
    work = f"{place}/work/{len(os.listdir(place + '/work'))}"
    os.mkdir(work, 0o700)
    paths = {"lowerdir": lower, "upperdir": place + "/upper", "workdir": work}
    opened = {name: native.open_exact(path) for name, path in paths.items()}
    opened["target"] = _opened_place(opened["lowerdir"], target)
    names = {name: f"/proc/self/fd/{number}" for name, number in opened.items()}
    try:
        words = [f"{name}={names[name]}" for name in paths]
        # with attributes that a user may set; without writing all files to the disk at the end
        options = ",".join([*words, "userxattr", "volatile"])
        native.mount("overlay", names["target"], "overlay", _QUIET, options)
    finally:
        for number in opened.values():
            os.close(number)


def open_layer(lower: str, place: str) -> int:
    """A descriptor of a layer's root, in new namespaces; it outlives them. Raises OSError."""
    own_namespaces(native.CLONE_NEWNS)
    _mount_layer(lower, place, lower)
    return native.open_exact(lower)


def _kernel_files(processes: str) -> list[str]:
    """The files in /proc that belong to the whole system, and that root could change."""
    return [
        f"{processes}/{name}"
        for name in sorted(os.listdir(processes))
        if not name.isdigit() and _changes_system(os.lstat(f"{processes}/{name}").st_mode)
    ]


def _changes_system(mode: int) -> bool:
    """Whether a file in /proc can be written, or is a directory that may hold such files."""
    return stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and bool(mode & 0o222))


def _bind(source: str, place: str, attributes: int) -> None:
    """Show `source` at `place`, too, which is made if it is missing.

    Another boxed command may exchange a directory for a link meanwhile. So both paths are opened
    once, links are refused, and everything else is done with the descriptors.
    """
    origin = native.open_exact(source)
    try:
        target = _opened_place(origin, place)
        try:
            native.bind(origin, target, attributes | native.ATTR_NOSUID)
        finally:
            os.close(target)
    finally:
        os.close(origin)


def _opened_place(origin: int, place: str) -> int:
    """A descriptor for `place`; if it is missing, an empty file or directory like `origin`."""
    try:
        return native.open_exact(place)
    except FileNotFoundError:
        if stat.S_ISDIR(os.fstat(origin).st_mode):
            return _made_directory(place)
    above, _, name = place.rpartition("/")
    directory = _made_directory(above)
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC  # a file to mount on
        os.close(os.open(name, flags, 0o600, dir_fd=directory))
    finally:
        os.close(directory)
    return native.open_exact(place)


def _made_directory(path: str) -> int:
    """A descriptor for a directory, which is made with those above it if it is missing."""
    try:
        return native.open_exact(path)
    except FileNotFoundError:
        above, _, name = path.rpartition("/")
    directory = _made_directory(above)
    try:
        os.mkdir(name, dir_fd=directory)
    finally:
        os.close(directory)
    return native.open_exact(path)


def _mount_processes(place: str, processes: int | None) -> None:
    """Mount the /proc of this namespace at `place`, in which nothing of the system can change."""
    os.mkdir(place)
    native.mount("proc", place, "proc", _QUIET | native.MS_NOEXEC)
    if processes is not None:
        _limit_processes(place, processes)
    for path in _kernel_files(place):
        _bind(path, path, native.ATTR_NODEV | native.ATTR_RDONLY)


def _mount_devices(place: str, shared_memory: int) -> None:
    """Mount a /dev at `place` with harmless devices, own terminals and own shared memory."""
    os.mkdir(place)
    native.mount("tmpfs", place, "tmpfs", native.MS_NOSUID, "mode=755,size=1m")
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"{place}/{name}", 0)  # without NODEV: a device must work there
    for name, source in _DEVICE_LINKS.items():
        os.symlink(source, f"{place}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{place}/{name}")
    options = "newinstance,ptmxmode=0666,mode=620"
    native.mount("devpts", place + "/pts", "devpts", native.MS_NOSUID | native.MS_NOEXEC, options)
    native.mount("tmpfs", place + "/shm", "tmpfs", _QUIET, f"mode=1777,size={shared_memory}")
    native.set_mount(place, native.ATTR_RDONLY)


def raise_interface(name: bytes) -> None:
    """Bring up a device of a new network, such as `lo`. Raises OSError."""
    plug = sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)
    try:
        # struct ifreq: a name of 16 bytes, then a union of which the flags are the beginning
        request = name.ljust(16, b"\0") + _IFF_UP_RUNNING.to_bytes(2, sys.byteorder)
        fcntl.ioctl(plug.fileno(), _SIOCSIFFLAGS, request.ljust(ctypes.sizeof(ctypes.c_long) * 5))
    finally:
        plug.close()


def send_root(channel: int, lower: str, place: str) -> None:
    """Send the descriptor of a layer's root; the exit code is the number of an error."""
    try:
        descriptor = open_layer(lower, place).to_bytes(4, sys.byteorder)
        rights = (sockets.SOL_SOCKET, sockets.SCM_RIGHTS, descriptor)
        sockets.socket(fileno=channel).sendmsg([b"!"], [rights])
    except OSError as error:
        os._exit(error.errno or 1)
    os._exit(0)

"""The filter of the system calls that a command may make."""

import errno
import functools
import json
import platform
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from shepherd.errors import ToolError

LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS: a word of struct seccomp_data
EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
GREATER = 0x25  # BPF_JMP | BPF_JGT | BPF_K
ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K

MAX_INSTRUCTIONS = 4096

NUMBER, ARCHITECTURE = 0, 4
"""Offsets in struct seccomp_data."""


class Instruction(NamedTuple):
    """One instruction; a jump skips `when_true` or `when_false` instructions."""

    code: int
    value: int
    when_true: int = 0
    when_false: int = 0


class Action(IntEnum):
    """The result of a filter."""

    ALLOW = 0x7FFF0000
    KILL_PROCESS = 0x80000000
    ERROR = 0x00050000  # plus the number of the error


def argument(index: int) -> int:
    """Offset of the lower half of an argument on a little-endian machine."""
    return 16 + 8 * index


def fail(error: int) -> Instruction:
    """End the system call with an error."""
    return Instruction(RETURN, Action.ERROR | error)


def finish(action: Action) -> Instruction:
    """End the filter."""
    return Instruction(RETURN, action)


def when(code: int, value: int, block: list[Instruction]) -> list[Instruction]:
    """Run `block` if the comparison holds; a block has at most 255 instructions."""
    return [Instruction(code, value, 0, len(block)), *block]


def assemble(instructions: Iterable[Instruction]) -> bytes:
    """The filter in the kernel's layout, `struct sock_filter[]`. Raises ValueError if too long."""
    program = list(instructions)
    if len(program) > MAX_INSTRUCTIONS:
        raise ValueError(f"the filter has {len(program)} instructions")
    return b"".join(
        struct.pack("<HBBI", i.code, i.when_true, i.when_false, i.value) for i in program
    )


_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The values of AUDIT_ARCH_."""

HIGHEST = 466
"""The newest call that is allowed (removexattrat of Linux 6.13), with one number everywhere."""


class Architecture(Struct, frozen=True, eq=False):
    """`audit` is the value of AUDIT_ARCH_; `numbers` has only the calls of the architecture."""

    name: str
    audit: int
    numbers: Mapping[str, int]


@cache
def architecture(name: str) -> Architecture:
    """The architecture of this name: `x86_64` or `aarch64`."""
    text = Path(__file__).with_name("syscalls.json").read_text("utf-8")
    return Architecture(name, _AUDIT[name], json.loads(text)[name])


def this_architecture() -> Architecture | None:
    """The architecture of this machine, None if there is no filter for it."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return architecture(machine) if machine in _AUDIT else None


REFUSED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease"),
    *("kcmp", "pidfd_getfd", "perf_event_open", "userfaultfd", "bpf", "lookup_dcookie"),
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "setns", "unshare", "open_by_handle_at"),
    *("keyctl", "add_key", "request_key", "lsm_set_self_attr"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("create_module", "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd"),
    *("settimeofday", "clock_settime", "clock_adjtime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "modify_ldt", "uselib", "vhangup", "syslog", "_sysctl", "nfsservctl"),
    *("fanotify_init", "fanotify_mark", "migrate_pages", "move_pages"),
)
"""Calls that end with EPERM."""

ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
"""Calls that end with ENOSYS, because programs then use an older call."""

METADATA = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr"),
    *("setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)
"""Changes of files that Landlock does not see."""

SHARED = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)
"""Calls that reach other processes if the command has no namespace of its own."""

SIGNALS = ("kill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tgkill", "tkill")
"""Signals, which older kernels can't confine."""

OWN_PROCESS = (
    "prlimit64",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
)
OWN_PROCESS_SECOND = ("setpriority", "ioprio_set")
"""Calls on a process that are allowed only for the caller; the argument names the process."""

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_FILE_FLAGS = (0x40086602, 0x40046602, 0x401C5820)  # FS_IOC_SETFLAGS, its 32-bit form, FSSETXATTR
_SET_LEASE = (1024,)  # F_SETLEASE: all others would wait for a file that can only be read here
_SET_OWNER = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: signals through a file
_SET_OWNER_CONTROL = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_PERSONALITIES = (0, 0x0040000, 0xFFFFFFFF)  # Linux, without random addresses, a question
_AF_NETLINK = 16  # which only Linux has
_NETLINK_ROUTE = 0  # queries about interfaces, with which resolvers and `ip` begin
_FIRST, _SECOND = 0, 1  # arguments of a call
_FAMILY, _TYPE, _PROTOCOL = 0, 1, 2  # the arguments of `socket` and `socketpair`
_CONTROL = 1  # the argument of `ioctl` and `fcntl` that says what to do
# SOCK_STREAM and SOCK_SEQPACKET with any of SOCK_NONBLOCK and SOCK_CLOEXEC: one of a pair of
# datagram sockets could be turned to any other socket
_CONNECTED = tuple(kind | flags for kind in (1, 5) for flags in (0, 0x800, 0x80000, 0x80800))


class Network(IntEnum):
    """The sockets that can be created; connected pairs are always allowed."""

    NONE = 0
    INTERNET = 1
    OWN = 2  # a network namespace: the families of the internet, and queries about interfaces


class FilterOptions(Struct, frozen=True):
    """`bare` means that only Landlock holds, so the filter also refuses what Landlock does not see.

    `signals` is False if the kernel can't confine signals.
    """

    network: Network
    bare: bool = False
    signals: bool = True


def filter_for_this_machine(options: FilterOptions) -> bytes:
    """`seccomp_filter` for this architecture. Raises ToolError if there is none."""
    architecture = this_architecture()
    if architecture is None:
        raise ToolError(f"there is no system call filter for {platform.machine()}")
    return seccomp_filter(architecture, options)


@functools.cache
def seccomp_filter(architecture: Architecture, options: FilterOptions) -> bytes:
    """The filter in the format of the kernel."""
    return assemble(_program(architecture, options))


def _program(architecture: Architecture, options: FilterOptions) -> Iterator[Instruction]:
    """The filter: a call of another architecture kills, a newer one fails, then each rule."""
    yield Instruction(LOAD, ARCHITECTURE)
    yield Instruction(EQUAL, architecture.audit, when_true=1, when_false=0)  # 1 skips the kill
    yield finish(Action.KILL_PROCESS)
    yield Instruction(LOAD, NUMBER)
    # this also refuses the calls of x32, whose numbers have a high bit
    yield from when(GREATER, HIGHEST, [fail(errno.ENOSYS)])
    for name, block in _rules(options):
        if name in architecture.numbers:
            yield from when(EQUAL, architecture.numbers[name], block)
    yield finish(Action.ALLOW)


def _rules(options: FilterOptions) -> Iterator[tuple[str, list[Instruction]]]:
    """The calls that do not simply work, each with the instructions that decide on it."""
    refused = [*REFUSED]
    if options.bare:
        refused += [*METADATA, *SHARED]
    if not options.signals:
        refused += SIGNALS
    for name in refused:
        yield name, [fail(errno.EPERM)]
    for name in ABSENT:
        yield name, [fail(errno.ENOSYS)]
    yield "clone", _unless_bits(_FIRST, _NEW_NAMESPACES)
    yield "personality", _only(_FIRST, _PERSONALITIES, errno.EPERM)
    controls, file_controls = _TERMINAL_INPUT, _SET_LEASE
    if options.bare:
        controls += _FILE_FLAGS
    if not options.signals:
        controls += _SET_OWNER_CONTROL
        file_controls += _SET_OWNER
    yield "ioctl", _except(_CONTROL, controls)
    yield "fcntl", _except(_CONTROL, file_controls)
    connected = _only(_TYPE, _CONNECTED, errno.EPROTONOSUPPORT)
    local = when(EQUAL, socket.AF_UNIX, connected)
    yield "socketpair", [*_load(_FAMILY), *local, fail(errno.EAFNOSUPPORT)]
    yield "socket", _sockets(options.network)
    if options.bare:
        this_process = (0,)
        for name in OWN_PROCESS:
            yield name, _only(_FIRST, this_process, errno.EPERM)
        for name in OWN_PROCESS_SECOND:
            yield name, _only(_SECOND, this_process, errno.EPERM)


def _sockets(network: Network) -> list[Instruction]:
    """The check of `socket`: families of the internet and, in an own network, of its interfaces."""
    refused = fail(errno.EAFNOSUPPORT)
    if network is Network.NONE:
        return [refused]
    internet = _only(_FAMILY, (socket.AF_INET, socket.AF_INET6), errno.EAFNOSUPPORT)
    if network is Network.INTERNET:
        return internet  # routes and interfaces are those of the machine
    # netlink only to read routes and interfaces, which are the own ones; then the internet
    allowed = when(EQUAL, _NETLINK_ROUTE, [finish(Action.ALLOW)])
    netlink = [*_load(_PROTOCOL), *allowed, refused]
    return [*_load(_FAMILY), *when(EQUAL, _AF_NETLINK, netlink), *internet]


def _load(index: int) -> list[Instruction]:
    """Load an argument of the call, for the comparisons that follow."""
    return [Instruction(LOAD, argument(index))]


def _only(index: int, values: tuple[int, ...], error: int) -> list[Instruction]:
    """Allow the call only if the argument is one of these values."""
    allowed = [i for value in values for i in when(EQUAL, value, [finish(Action.ALLOW)])]
    return [*_load(index), *allowed, fail(error)]


def _except(index: int, values: tuple[int, ...]) -> list[Instruction]:
    """Allow the call unless the argument is one of these values."""
    refused = [i for value in values for i in when(EQUAL, value, [fail(errno.EPERM)])]
    return [*_load(index), *refused, finish(Action.ALLOW)]


def _unless_bits(index: int, bits: int) -> list[Instruction]:
    """Allow the call unless the argument has one of these bits."""
    return [*_load(index), *when(ANY_BIT, bits, [fail(errno.EPERM)]), finish(Action.ALLOW)]

"""The system call filter, run by an interpreter over every call."""

import errno
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.tools.sandbox.seccomp import (
    ABSENT,
    HIGHEST,
    MAX_INSTRUCTIONS,
    METADATA,
    OWN_PROCESS,
    OWN_PROCESS_SECOND,
    REFUSED,
    SHARED,
    SIGNALS,
    Action,
    Architecture,
    FilterOptions,
    Instruction,
    Network,
    architecture,
    assemble,
    seccomp_filter,
)

X86_64, AARCH64 = architecture("x86_64"), architecture("aarch64")

_BOTH = (X86_64, AARCH64)
_OPTIONS = [
    FilterOptions(network, bare, signals)
    for network in Network
    for bare in (False, True)
    for signals in (False, True)
]
_HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
_ALLOW, _KILL = int(Action.ALLOW), int(Action.KILL_PROCESS)
_WORD = st.integers(0, 2**64 - 1)


def _error(number: int) -> int:
    return Action.ERROR | number


_PERM, _NOSYS, _FAMILY = (_error(n) for n in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))


def run_filter(program: bytes, data: bytes) -> int:
    """What the kernel's interpreter gives for `struct seccomp_data`."""
    instructions = list(struct.iter_unpack("<HBBI", program))
    accumulator, position = 0, 0
    while True:
        code, when_true, when_false, value = instructions[position]
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            return value
        else:
            holds = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x45: bool(accumulator & value),
            }[code]
            position += when_true if holds else when_false


def _call(architecture: Architecture, number: int, *arguments: int) -> bytes:
    words = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    return struct.pack("<iIQ6Q", number, architecture.audit, 0, *words)


def _verdict(options: FilterOptions, architecture: Architecture, name: str, *arguments: int) -> int:
    program = seccomp_filter(architecture, options)
    return run_filter(program, _call(architecture, architecture.numbers[name], *arguments))


@pytest.mark.parametrize("architecture", _BOTH, ids=lambda a: a.name)
@pytest.mark.parametrize("options", _OPTIONS, ids=str)
def test_every_call_is_refused_or_allowed_as_listed(
    architecture: Architecture, options: FilterOptions
) -> None:
    program = seccomp_filter(architecture, options)
    refused = {*REFUSED, *((*METADATA, *SHARED) if options.bare else ())}
    refused |= set() if options.signals else set(SIGNALS)
    names = {number: name for name, number in architecture.numbers.items()}
    by_argument = {"clone", "personality", "ioctl", "socket", "socketpair", "fcntl"}
    by_argument |= {*OWN_PROCESS, *OWN_PROCESS_SECOND}

    for number in range(HIGHEST + 200):
        name = names.get(number, "")
        if name in by_argument:
            continue
        expected = _ALLOW
        if name in refused:
            expected = _PERM
        elif number > HIGHEST or name in ABSENT:
            expected = _NOSYS
        assert run_filter(program, _call(architecture, number)) == expected, (number, name)


@pytest.mark.parametrize("architecture", _BOTH, ids=lambda a: a.name)
def test_another_architecture_ends_the_process(architecture: Architecture) -> None:
    program = seccomp_filter(architecture, FilterOptions(Network.OWN))
    other = AARCH64 if architecture is X86_64 else X86_64
    i386 = struct.pack("<iIQ6Q", 5, 0x40000003, 0, *[0] * 6)

    assert run_filter(program, _call(other, 0)) == _KILL
    assert run_filter(program, i386) == _KILL


@given(st.integers(-(2**31), 2**31 - 1), st.lists(_WORD, min_size=6, max_size=6))
def test_high_numbers_never_pass(number: int, arguments: list[int]) -> None:
    program = seccomp_filter(X86_64, FilterOptions(Network.OWN))

    verdict = run_filter(program, _call(X86_64, number, *arguments))

    assert verdict != _ALLOW or 0 <= number <= HIGHEST


@given(st.sampled_from(_BOTH), _WORD)
def test_clone_makes_no_namespace(architecture: Architecture, flags: int) -> None:
    verdict = _verdict(FilterOptions(Network.OWN), architecture, "clone", flags)

    new = 0x20000 | sum(1 << bit for bit in range(25, 31))
    assert verdict == (_PERM if flags & new else _ALLOW)


@given(st.sampled_from(_BOTH), st.sampled_from(Network), _WORD, _WORD, _WORD)
def test_only_listed_families_have_sockets(
    architecture: Architecture, network: Network, family: int, kind: int, protocol: int
) -> None:
    verdict = _verdict(FilterOptions(network), architecture, "socket", family, kind, protocol)

    internet = family % 2**32 in (2, 10) and network is not Network.NONE
    routes = family % 2**32 == 16 and protocol % 2**32 == 0 and network is Network.OWN
    assert verdict == (_ALLOW if internet or routes else _FAMILY)


@pytest.mark.parametrize("architecture", _BOTH, ids=lambda a: a.name)
@pytest.mark.parametrize("network", Network)
def test_each_family(architecture: Architecture, network: Network) -> None:
    allowed = {Network.NONE: (), Network.INTERNET: (2, 10), Network.OWN: (2, 10, 16)}[network]

    for family in (*range(50), 2**32 + 2, 2**31):
        verdict = _verdict(FilterOptions(network), architecture, "socket", family)
        pair = _verdict(FilterOptions(network), architecture, "socketpair", family, 1)
        assert verdict == (_ALLOW if family % 2**32 in allowed else _FAMILY)
        assert pair == (_ALLOW if family == 1 else _FAMILY)


@given(st.sampled_from(_BOTH), st.integers(0, 15), st.sampled_from((0, 0x800, 0x80000, 0x80800)))
def test_pairs_are_connected_for_good(architecture: Architecture, kind: int, flags: int) -> None:
    options = FilterOptions(Network.OWN)

    verdict = _verdict(options, architecture, "socketpair", 1, kind | flags)

    assert verdict == (_ALLOW if kind in (1, 5) else _error(errno.EPROTONOSUPPORT))


@pytest.mark.parametrize("architecture", _BOTH, ids=lambda a: a.name)
def test_arguments_are_compared_as_the_kernel_reads_them(architecture: Architecture) -> None:
    own, bare = FilterOptions(Network.OWN), FilterOptions(Network.NONE, bare=True)
    old = FilterOptions(Network.NONE, bare=True, signals=False)
    cases = [
        (own, "ioctl", (0, 0x5412), _PERM),
        (own, "ioctl", (0, 0xDEAD_0000_5412), _PERM),
        (own, "ioctl", (0, 0x541C), _PERM),
        (own, "ioctl", (0, 0x5413), _ALLOW),
        (own, "ioctl", (0, 0x40086602), _ALLOW),
        (bare, "ioctl", (0, 0x40086602), _PERM),
        (old, "fcntl", (0, 8), _PERM),
        (old, "fcntl", (0, 2), _ALLOW),
        (own, "fcntl", (0, 8), _ALLOW),
        (own, "fcntl", (0, 1024), _PERM),
        (own, "fcntl", (0, 6), _ALLOW),
        (old, "ioctl", (0, 0x8901), _PERM),
        (own, "personality", (0,), _ALLOW),
        (own, "personality", (0xFFFFFFFF,), _ALLOW),
        (own, "personality", (0x0400000,), _PERM),
        (own, "personality", (8,), _PERM),
        (own, "prlimit64", (1,), _ALLOW),
        (bare, "prlimit64", (0,), _ALLOW),
        (bare, "prlimit64", (1,), _PERM),
        (bare, "setpriority", (0, 0), _ALLOW),
        (bare, "setpriority", (0, 1), _PERM),
    ]

    for options, name, arguments, expected in cases:
        assert _verdict(options, architecture, name, *arguments) == expected, (name, arguments)


@pytest.mark.parametrize("architecture", _BOTH, ids=lambda a: a.name)
def test_the_numbers_are_those_of_the_headers(architecture: Architecture) -> None:
    header = _HEADERS[architecture.name]
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    pattern = re.compile(r"#define __NR(?:3264)?_(\w+)\s+(?:__NR3264_\w+|(\d+))$", re.MULTILINE)
    listed = {name: int(n) for name, n in pattern.findall(header.read_text("utf-8")) if n}

    ours = {name: n for name, n in architecture.numbers.items() if name in listed}

    assert ours == {name: listed[name] for name in ours}
    assert len(ours) > 70


def test_filters_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="instructions"):
        assemble([Instruction(6, 0)] * (MAX_INSTRUCTIONS + 1))

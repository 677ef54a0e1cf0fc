"""A small assembler for seccomp filters (classic BPF)."""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

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

"""Asking for approval in plain lines on the terminal, where there is no prompt of our own."""

import asyncio
import os
import sys
import termios
from typing import TextIO

from shepherd.tools.permissions.approval import (
    Approval,
    ApprovalRequest,
    Approver,
    DenyingApprover,
)

TERMINAL = "/dev/tty"


def choose_approver() -> Approver:
    """Somebody to ask if a person sees stderr and has a keyboard, else one who denies."""
    if not sys.stderr.isatty() or not os.access(TERMINAL, os.R_OK):
        return DenyingApprover()
    return LineApprover()


class LineApprover:
    """Shows the request on stderr and reads lines from the terminal, even with stdin piped."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The user's answer; only a full word allows anything."""
        from shepherd.cli.approval.plain_question import ask_in_lines
        from shepherd.cli.approval.question import Answer, approval_question, choice_of

        async with self._one_at_a_time:
            lines = _TerminalLines()
            answer = await ask_in_lines(approval_question(request), lines)
            feedback = await lines.read("tell the model: ") if answer is Answer.TELL else ""
            return Approval(choice_of(answer), (feedback or "").strip())


class _TerminalLines:
    """Lines of the terminal; what is shown goes to stderr."""

    def __init__(self) -> None:
        self.target: TextIO = sys.stderr

    def show(self, text: str) -> None:
        self.target.write(text)
        self.target.flush()

    async def read(self, label: str) -> str | None:
        self.show(label)
        return await _terminal_line()

    async def forget_typed(self) -> None:
        from shepherd.cli.approval.question import QUIET_SECONDS

        await asyncio.sleep(QUIET_SECONDS)
        descriptor = os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY)
        try:
            termios.tcflush(descriptor, termios.TCIFLUSH)
        finally:
            os.close(descriptor)


async def _terminal_line() -> str | None:
    """A line from the terminal, None at its end; cancelling leaves nothing behind."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Event = asyncio.Event()
    descriptor = os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY)
    try:
        loop.add_reader(descriptor, readable.set)
        await readable.wait()
        return os.read(descriptor, 4096).decode("utf-8", "replace") or None
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)

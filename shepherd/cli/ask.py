"""Asking for approval in plain lines on the terminal, where there is no prompt of our own."""

import asyncio
import os
import sys

from shepherd.cli.repl.clean import clean, one_line
from shepherd.tools.permissions.approval import (
    Approval,
    ApprovalRequest,
    Approver,
    Choice,
    DenyingApprover,
)
from shepherd.tools.text import counted

TERMINAL = "/dev/tty"
PREVIEW_LINES = 60
_LASTING = (("s", Choice.SESSION), ("a", Choice.ALWAYS))
_ANSWERS = {"y": Choice.ONCE, **dict(_LASTING)}


def choose_approver() -> Approver:
    """Somebody to ask if a person sees stderr and has a keyboard, else one who denies."""
    if not sys.stderr.isatty() or not os.access(TERMINAL, os.R_OK):
        return DenyingApprover()
    return LineApprover()


class LineApprover:
    """Shows the request on stderr and reads a line from the terminal, even with stdin piped."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The user's answer; anything but a clear yes denies."""
        sys.stderr.write(_question(request))
        sys.stderr.flush()
        answer = (await _terminal_line()).strip().lower()
        choice = _ANSWERS.get(answer[:1], Choice.DENY)
        if choice in (Choice.SESSION, Choice.ALWAYS) and not request.rules_for(choice):
            choice = Choice.ONCE
        return Approval(choice)


def _question(request: ApprovalRequest) -> str:
    call = f"{request.call.name} {one_line(request.call.arguments_json, 400)}"
    lines = clean(request.preview).splitlines()
    rest = len(lines) - PREVIEW_LINES
    more = [f"… {counted(rest, 'more line')}"] if rest > 0 else []
    lasting = [line for letter, choice in _LASTING for line in _rules(request, letter, choice)]
    asker = one_line(request.asker, 80) or "the model"
    sandbox = [clean(request.sandbox)] if request.sandbox else []
    head = [f"May {asker} call {call}?", *lines[:PREVIEW_LINES], *more, *sandbox]
    return "\n".join([*head, "y = once", *lasting, "n = no", "? "])


def _rules(request: ApprovalRequest, letter: str, choice: Choice) -> list[str]:
    rules = request.rules_for(choice)
    return [f"{letter} = {'; '.join(clean(rule.describe()) for rule in rules)}"] if rules else []


async def _terminal_line() -> str:
    """A line from the terminal, "" at its end; cancelling leaves nothing behind."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Event = asyncio.Event()
    descriptor = os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY)
    try:
        loop.add_reader(descriptor, readable.set)
        await readable.wait()
        return os.read(descriptor, 4096).decode("utf-8", "replace")
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)

"""One question, one answer."""

import os
import select
import stat
import sys
from io import TextIOWrapper

from shepherd.cli.batch.line_approver import choose_approver
from shepherd.cli.batch.plain_output import PlainOutput
from shepherd.conversation.conversation import Conversation
from shepherd.errors import ShepherdError
from shepherd.events import FinishReason
from shepherd.messages import Message
from shepherd.turn import run_turn

STDIN = 0
PATIENCE = 3.0
"""Seconds of silence on stdin after which the user is told what is waited for."""

PIPED_BYTES = 1_048_576
"""How much of stdin is taken as context."""

EXIT_CODES = {FinishReason.ERROR: 1, FinishReason.CANCELLED: 130}
"""Exit code of a turn by how it ended; 0 otherwise."""


def read_piped() -> str:
    """What is piped or redirected to stdin, at most PIPED_BYTES; "" if it is a terminal."""
    if not _stdin_holds_data():
        return ""
    if not select.select([STDIN], [], [], PATIENCE)[0]:
        sys.stderr.write("shepherd: waiting for the end of stdin (< /dev/null gives none)\n")
    data = sys.stdin.buffer.read(PIPED_BYTES + 1)
    if len(data) > PIPED_BYTES:
        sys.stderr.write(f"shepherd: only the first {PIPED_BYTES} bytes of stdin are used\n")
    return data[:PIPED_BYTES].decode("utf-8", "replace").strip()


def with_context(prompt: str, context: str) -> str:
    """The question, with what was piped in behind it."""
    return "\n\n".join(part for part in (prompt, context) if part)


async def run_oneshot(conversation: Conversation, prompt: str | Message) -> int:
    """Answer `prompt` and return the exit code.

    Raises ShepherdError when the backend can't be loaded, BrokenPipeError when nobody reads
    the answer.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    output = PlainOutput(live=sys.stdout.isatty())
    conversation.notices.listen(output.note)
    backend = await conversation.backend()
    tools = conversation.tool_runner(choose_approver())
    try:
        outcome = await run_turn(
            conversation.session, prompt, backend, tools, output.receive, conversation.limits
        )
    except ShepherdError:
        return 1  # the ERROR event has told it
    finally:
        output.finish()
    if output.broken:
        raise BrokenPipeError
    return EXIT_CODES.get(outcome.finish_reason, 0)


def _stdin_holds_data() -> bool:
    try:
        mode = os.fstat(STDIN).st_mode
    except OSError:  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)

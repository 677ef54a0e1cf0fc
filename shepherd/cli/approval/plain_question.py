"""A question in plain lines: its full text in pages, then an answer in a full word.

It is asked on the terminal, also while stdin and stdout are pipes.
"""

import asyncio
import os
import re
import sys
import termios
from collections.abc import Iterator, Sequence
from io import FileIO
from typing import Protocol, TextIO

from shepherd.cli.approval.pager import Pager, fold, row_text
from shepherd.cli.approval.question import (
    QUIET_SECONDS,
    Answer,
    Question,
    approval_question,
    choice_of,
    fact,
    text_lines,
)
from shepherd.tools.permissions import approval
from shepherd.tools.text import reveal

WIDTH = 100
"""Columns if the output is not a terminal."""
_SPAN = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_DIFF = "diff"
"""The word that prints the details of a question."""
OTHER_ROWS = 3
"""Rows of a page that do not belong to the text."""


class Lines(Protocol):
    """The output and input of lines."""

    target: TextIO

    def write(self, text: str) -> None:
        """Print."""

    async def read(self, label: str) -> str | None:
        """Print `label` and wait for a line; None at the end of the input."""
        ...

    async def forget_typed(self) -> None:
        """Ensure that `read` ignores every line that was typed before now."""


async def ask_in_lines(question: Question, lines: Lines) -> Answer:
    """Show all of `question`, page by page on a terminal, and wait for an answer.

    Only a full word is an answer. After anything else the question is repeated; the end of the
    input means no.
    """
    columns, _ = _size(lines.target)
    for row in fold([(question.heading, "")], columns):
        lines.write(f"{row_text(row)}\n")
    for page, position in _pages(question, lines.target):
        lines.write(f"{page}\n")
        is_last = not position
        if not is_last and not await _goes_on(position, lines):
            return Answer.NO  # it was not read to its end
    lines.write("\n".join([*_entries(question, lines.target), ""]))
    await lines.forget_typed()  # what was typed for a page must not answer the question
    return await _answer(question, lines)


async def _goes_on(position: str, lines: Lines) -> bool:
    """Whether the user wants the next page; only Enter and `no` are answers."""
    while True:
        line = await lines.read(f"-- {position} [Enter/no] ")
        if line is None or line.strip().lower() == Answer.NO:
            return False
        if not line.strip():
            return True
        lines.write("Nothing was approved: more follows.\n")


async def _answer(question: Question, lines: Lines) -> Answer:
    """Ask until a line is one of the words; the end of the input means no."""
    words = [entry.answer.value for entry in question.entries]
    words += [_DIFF] if question.details else []
    answers = {entry.answer.value: entry.answer for entry in question.entries}
    answers["yes"] = Answer.ONCE  # what many type, although it is not listed
    while True:
        line = await lines.read(f"[{'/'.join(words)}] ")
        if line is None:
            return Answer.NO
        word = line.strip().lower()
        answer = answers.get(word)
        if answer is not None:
            return answer
        if word == _DIFF and question.details:
            for row in Pager(question.details, unicode=False).next_page(WIDTH, 0):
                lines.write(f"{row_text(row)}\n")
            continue
        lines.write(f"Nothing was approved. The answers are the words {', '.join(words)}.\n")


async def parts_in_lines(parts: Sequence[approval.Part], lines: Lines) -> tuple[int, ...] | None:
    """List the parts, and wait for the numbers of those to keep; None without one."""
    for number, part in enumerate(parts, 1):
        lines.write(f"{number:>4} {reveal(part.name)}\n")
    while True:
        line = await lines.read(f"keep which? [such as 1,3-5/{_DIFF}/nothing: back] ")
        if line is None or not line.strip():
            return None
        if line.strip().lower() == _DIFF:
            for number, part in enumerate(parts, 1):
                text = [fact(f"{number} {part.name}", ""), *text_lines(part.diff)]
                for row in Pager(text, unicode=False).next_page(WIDTH, 0):
                    lines.write(f"{row_text(row)}\n")
            continue
        numbers = _numbers(line, len(parts))
        if numbers:
            return numbers
        lines.write(f"Nothing was approved. The parts have the numbers 1 to {len(parts)}.\n")


def _numbers(text: str, last: int) -> tuple[int, ...]:
    """The numbers of a text such as `1,3-5`; none if it has anything else."""
    numbers: set[int] = set()
    for piece in text.replace(",", " ").split():
        span = _SPAN.fullmatch(piece)
        first, end = (int(span[1]), int(span[2] or span[1])) if span else (0, 0)
        if not 1 <= first <= end <= last:
            return ()
        numbers.update(range(first, end + 1))
    return tuple(sorted(numbers))


def _pages(question: Question, target: TextIO) -> Iterator[tuple[str, str]]:
    """Pages of the text, each with its position, or "" for the last; one without a terminal."""
    columns, rows = _size(target)
    unicode = (target.encoding or "").lower().startswith("utf")
    pager = Pager(question.lines, unicode=unicode)
    while True:
        page = pager.next_page(columns, rows)
        yield "\n".join(map(row_text, page)), "" if pager.at_end else pager.position()
        if pager.at_end:
            return


def _entries(question: Question, target: TextIO) -> Iterator[str]:
    """A line for each answer, and below it the rules that it adds."""
    columns, _ = _size(target)
    for entry in question.entries:
        yield f"{entry.answer.value:<8} = {entry.meaning}"
        for rule in entry.rules:
            rows = fold([(rule, "")], columns, lambda _row: "    ")
            yield from map(row_text, rows)


def _size(target: TextIO) -> tuple[int, int]:
    """Columns, and rows of a page; 0 rows mean no limit.

    A terminal that does not know its size, as in some containers, reports 0.
    """
    if not target.isatty():
        return WIDTH, 0
    try:
        columns, rows = os.get_terminal_size(target.fileno())
    except OSError:
        columns = rows = 0
    # a tiny terminal scrolls: 0 rows would be no limit
    return max(20, columns or WIDTH), max(3, (rows or 24) - OTHER_ROWS)


TERMINAL = "/dev/tty"


def choose_approver() -> approval.Approver:
    """The approver that asks on the terminal, or one that denies if there is no terminal.

    The question is shown on stderr, so that must be a terminal too.
    """
    if not sys.stderr.isatty() or not os.access(TERMINAL, os.R_OK):
        return approval.DenyingApprover()
    return LineApprover()


class LineApprover:
    """Shows the request on stderr and reads lines from the terminal, even with stdin piped."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, request: approval.ApprovalRequest) -> approval.Approval:
        """The user's answer, why not, and the values of the fields that the request has."""
        async with self._one_at_a_time:
            lines = _TerminalLines()
            question, parts = approval_question(request), None
            answer = await ask_in_lines(question, lines)
            while answer is Answer.SOME:
                parts = await parts_in_lines(question.parts, lines)
                if parts is not None:
                    break
                answer = await ask_in_lines(question, lines)
            feedback = await lines.read("tell the model: ") if answer is Answer.TELL else ""
            fields = request.fields if answer.allows else ()
            texts = [await lines.read(f"{reveal(name)}: ") for name in fields]
            values = tuple((text or "").strip() for text in texts)  # None: the input has ended
            return approval.Approval(
                choice_of(answer), (feedback or "").strip(), values=values, parts=parts
            )


class _TerminalLines:
    """Lines of the terminal; output goes to stderr."""

    def __init__(self) -> None:
        self.target: TextIO = sys.stderr

    def write(self, text: str) -> None:
        self.target.write(text)
        self.target.flush()

    async def read(self, label: str) -> str | None:
        self.write(label)
        return await _terminal_line()

    async def forget_typed(self) -> None:
        await asyncio.sleep(QUIET_SECONDS)  # what is typed so soon is no answer either
        with _opened_terminal() as terminal:
            termios.tcflush(terminal, termios.TCIFLUSH)


async def _terminal_line() -> str | None:
    """A line from the terminal, None at its end; cancelling leaves no reader behind."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Event = asyncio.Event()
    with _opened_terminal() as terminal:
        loop.add_reader(terminal, readable.set)
        try:
            await readable.wait()
            # a terminal gives one line at a time, which is no longer
            return os.read(terminal.fileno(), 4096).decode("utf-8", "replace") or None
        finally:
            loop.remove_reader(terminal)


def _opened_terminal() -> FileIO:
    return FileIO(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY))

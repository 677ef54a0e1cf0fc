"""One question, one answer."""

import os
import select
import stat
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from msgspec import Struct, field

from shepherd import errors, events, messages, validation
from shepherd.cli.approval.plain_question import choose_approver
from shepherd.cli.terminal.sanitize import one_line, sanitize, sanitize_chunk
from shepherd.config.section import ApproveMode
from shepherd.conversation.commands import table
from shepherd.conversation.conversation import Conversation
from shepherd.knowledge.commands import parse_line
from shepherd.tools.permissions.approval import (
    Approval,
    ApprovalRequest,
    Approver,
    Choice,
    DenyingApprover,
)
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.plan import ASCII_SIGNS, PLAN_TOOLS
from shepherd.turn import run_turn

DENIED_RESULT = "Error: denied"
"""The beginning of a denied call's result."""

LINE_WIDTH = 200
"""The maximum length of a line that reports a tool call or result."""


class _Stream(Struct):
    """A text stream that tracks whether its last line is still open."""

    file: TextIO
    is_open: bool = False

    def write(self, text: str) -> None:
        """Write a text at once; "" writes nothing."""
        if text:
            self.file.write(text)
            self.file.flush()
            self.is_open = not text.endswith("\n")

    def end_line(self) -> None:
        """Begin a new line, unless the last one has ended."""
        if self.is_open:
            self.write("\n")


class PlainOutput(Struct):
    """Shows one turn; `receive` is its callback.

    On a terminal, text appears as it arrives. Otherwise stdout gets only the last answer, byte for
    byte, and text between tool calls goes to stderr. `broken` is True once stdout is closed; the
    turn is then cancelled. `denied` counts the results of denied calls.
    """

    live: bool
    broken: bool = False
    denied: int = 0
    _out: _Stream = field(default_factory=lambda: _Stream(sys.stdout))
    _err: _Stream = field(default_factory=lambda: _Stream(sys.stderr))
    _held_text: list[str] = field(default_factory=list[str])

    def receive(self, event: events.Event) -> bool:
        """Show an event; False if stdout is closed."""
        try:
            self._show(event)
        except BrokenPipeError:
            self.broken = True
        return not self.broken

    def finish(self) -> None:
        """Show the held text and end the last line."""
        if self.broken:
            return
        try:
            self._release(self._out)
            self._out.end_line()
            self._err.end_line()
        except BrokenPipeError:
            self.broken = True

    def note(self, text: str) -> None:
        """Print a line on stderr."""
        if self.live:  # else stdout gets the answer byte for byte, without a line break of ours
            self._out.end_line()
        self._err.end_line()
        self._err.write(f"{sanitize(text)}\n")

    def _show(self, event: events.Event) -> None:
        """Write an event to the stream where it belongs; raises BrokenPipeError."""
        match event:
            case events.Text():
                self._answer(event.text)
            case events.Thinking():
                self._err.write(sanitize_chunk(event.text))
            case events.Stop():
                self._end_generation(event.reason)
            case messages.ToolCall() if event.name not in PLAN_TOOLS:
                self.note(f"→ {event.name} {one_line(event.arguments_json, LINE_WIDTH)}")
            case events.ToolResult():
                self.denied += 1 if event.text.startswith(DENIED_RESULT) else 0
                self.note(f"  {one_line(event.text, LINE_WIDTH)}")
            case events.Failure():
                self.note(f"shepherd: {event.message}")
            case events.PlanUpdate():
                self._plan(event)
            case events.Notice() if event.topic != events.Topic.OUTPUT:
                self.note(event.text)
            case _:
                pass

    def _end_generation(self, reason: events.FinishReason) -> None:
        """Write the text that was held, which is no answer if tool calls follow it."""
        has_calls = reason is events.FinishReason.TOOL_CALLS
        self._release(self._err if has_calls else self._out)
        if reason is events.FinishReason.LENGTH:
            self.note(events.CUT)

    def _plan(self, plan: events.PlanUpdate) -> None:
        """Show a plan: a proposal as an answer, a checklist as a note."""
        if plan.proposal:
            self._err.end_line()
            self._out.write(f"{sanitize(plan.proposal)}\n")
        else:
            self.note("\n".join(f"{ASCII_SIGNS[step.status]} {step.step}" for step in plan.steps))

    def _answer(self, text: str) -> None:
        """Write a piece of the answer, or hold it until it is known to be the last one."""
        if self.live:
            self._err.end_line()
            self._out.write(sanitize_chunk(text))
        else:
            self._held_text.append(text)

    def _release(self, stream: _Stream) -> None:
        """Write the held text to a stream; stdout gets it as the model wrote it."""
        text = "".join(self._held_text)
        self._held_text.clear()
        if text:
            self._err.end_line()
        stream.write(sanitize(text) if stream is self._err else text)


STDIN = 0
SILENCE_SECONDS = 3.0
"""Seconds of silence on stdin before a notice tells the user that it is being read."""

MAX_PIPED_BYTES = 1_048_576
"""The maximum of bytes from stdin that are used as context."""

DENIED = 3
"""The exit code of a turn that ended well, but in which a call was denied."""

_EXIT_CODES = {events.FinishReason.ERROR: 1, events.FinishReason.CANCELLED: 130}


def exit_code(reason: events.FinishReason, denied: int) -> int:
    """The exit code of a turn in which this number of calls was denied."""
    return _EXIT_CODES.get(reason, DENIED if denied else 0)


class Denials(Struct):
    """A `CallObserver` that counts what was denied: by a rule, by the user, or with no user.

    In plan mode nothing counts, because the mode itself denies every change.
    """

    policy: PermissionPolicy
    count: int = 0

    def ruled(self, decision: Decision, cause: str) -> None:
        """Count a denial by a rule."""
        self._add(denied=decision is Decision.DENY)

    def answered(self, approval: Approval) -> None:
        """Count a denial by the user, or because nobody can answer."""
        self._add(denied=approval.choice is Choice.DENY)

    def started(self) -> None:
        """Nothing: the call was allowed."""

    def _add(self, *, denied: bool) -> None:
        """Count a decision if it was a denial, and not one of plan mode."""
        if denied and self.policy.mode is not ApproveMode.PLAN:
            self.count += 1


def read_piped() -> str:
    """The input on stdin, at most MAX_PIPED_BYTES; "" if stdin is a terminal."""
    if not _stdin_holds_data():
        return ""
    readable, _, _ = select.select([STDIN], [], [], SILENCE_SECONDS)
    if not readable:
        sys.stderr.write("shepherd: waiting for the end of stdin (< /dev/null gives none)\n")
    data = sys.stdin.buffer.read(MAX_PIPED_BYTES + 1)  # one more shows that there is more
    if len(data) > MAX_PIPED_BYTES:
        sys.stderr.write(f"shepherd: only the first {MAX_PIPED_BYTES} bytes of stdin are used\n")
    return data[:MAX_PIPED_BYTES].decode("utf-8", "replace").strip()


def with_context(prompt: str, context: str) -> str:
    """The question, followed by the piped input."""
    return "\n\n".join(part for part in (prompt, context) if part)


async def run_oneshot(conversation: Conversation, prompt: str | messages.Message) -> int:
    """Answer `prompt` and return the exit code.

    Raises ShepherdError if the backend can't be loaded or a custom command can't be done, and
    BrokenPipeError if stdout is closed.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a character that it can't encode is no error
            stream.reconfigure(errors="backslashreplace")
    output = PlainOutput(live=sys.stdout.isatty())
    return await _run(conversation, prompt, output, choose_approver())


async def _run(
    conversation: Conversation,
    prompt: str | messages.Message,
    output: PlainOutput,
    approver: Approver,
) -> int:
    """Run the turn; returns the exit code."""
    conversation.notices.listen(output.note)
    denials = Denials(conversation.policy)
    # before the preparation, which may ask for consent to servers
    tools = conversation.tool_runner(approver).observed_by(denials)
    backend, message = await conversation.prepare(prompt)
    try:
        outcome = await run_turn(
            conversation.session, message, backend, tools, output.receive, conversation.limits
        )
    except errors.ShepherdError:
        return 1  # the ERROR event has reported it
    finally:
        output.finish()
    if output.broken:
        raise BrokenPipeError
    return exit_code(outcome.finish_reason, denials.count)


class _PatchApprover(Struct, frozen=True):
    """Approves the changes of a review, and nothing else, for which nobody is asked."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Yes for the effect of the turn."""
        if request.is_effect:
            return Approval(Choice.ONCE)
        return await DenyingApprover().ask(request)


async def run_for_patch(
    conversation: Conversation, prompt: messages.Message, *, apply: bool
) -> int:
    """Answer `prompt` on stderr, print all changes as a patch on stdout, and return the exit code.

    Nothing is changed, unless `apply`. Raises as `run_oneshot`.
    """
    conversation.reviews_turns = False
    output = PlainOutput(live=False, _out=_Stream(sys.stderr))
    code = await _run(conversation, prompt, output, DenyingApprover())
    runner = conversation.tool_runner(_PatchApprover())
    sys.stdout.buffer.write(await runner.patch())
    sys.stdout.flush()
    if apply and code == 0:
        output.note((await runner.review()).text)
    await conversation.drop_review()  # the patch is printed
    return code


async def print_command(
    conversation: Conversation, command: table.ConversationCommand, argument: str
) -> int:
    """Print the output of a command and return the exit code; raises ShepherdError."""
    conversation.notices.listen(PlainOutput(live=False).note)
    print_text(await table.output_of(command, conversation, argument))
    return 0


def print_text(text: str) -> None:
    """Print a command's output on stdout."""
    sys.stdout.write(f"{sanitize(text) if sys.stdout.isatty() else text}\n")
    sys.stdout.flush()


def _stdin_holds_data() -> bool:
    """Whether stdin is a pipe, a file or a socket; a terminal or /dev/null is none of them."""
    try:
        mode = os.fstat(STDIN).st_mode
    except OSError:  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


MAX_NAME = 40


def question_command(
    conversation: Conversation, question: str
) -> tuple[table.ConversationCommand, str] | None:
    """The command that a question calls, and its argument; None for a message to the model.

    Raises UsageError for a command that needs the terminal, and for an unknown one. Custom
    commands, prompts of MCP servers, and paths such as `/etc` are messages.
    """
    call, line = table.find_command(question), parse_line(question)
    if call is not None or line is None:  # a command, or a line that does not begin with /NAME
        return call
    called_name, _ = line
    if _is_message(conversation, question, called_name):
        return None
    name = one_line(called_name, MAX_NAME)
    if called_name in table.TERMINAL_COMMANDS:
        other = table.TERMINAL_COMMANDS[called_name]
        advice = f"use `{other}` instead" if other else "start `shepherd` and type it there"
        raise errors.UsageError(f"/{name} works only in the interactive terminal; {advice}.")
    names = [*table.COMMANDS, *(str(c["name"]) for c in conversation.knowledge.command_list())]
    similar = validation.nearest(called_name, names, cutoff=0.5)
    advice = f"did you mean /{similar}?" if similar else f"there are /{', /'.join(names)}."
    raise errors.UsageError(f"There is no command /{name}; {advice}")


def _is_message(conversation: Conversation, question: str, name: str) -> bool:
    """Whether a question that begins with /NAME is for the model: it expands NAME, or is a path."""
    knowledge, servers = conversation.knowledge, conversation.servers
    return (
        any(command["name"] == name for command in knowledge.command_list())
        or (servers is not None and servers.is_named_in(question))
        or Path("/", name).exists()
    )

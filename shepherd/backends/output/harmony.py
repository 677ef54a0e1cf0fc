"""Harmony, the format of GPT-OSS: messages with a header that names channel and recipient."""

import re
from collections.abc import Mapping

from shepherd.backends.output import markers, modes
from shepherd.backends.output.engine import CallReader
from shepherd.backends.output.notation import Notation
from shepherd.events import CallbackEvent

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_CALL = Notation("to=", MESSAGE, "<|call|>", begin=CHANNEL, many=False)
"""A message to a tool, with as much of its header as matters."""

_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_BOUNDARY = markers.MarkerSet.of(*_ENDS, START, CHANNEL)
_HEADER_END = markers.MarkerSet.of(*_ENDS, START, MESSAGE)
_MAX_HEADER = 256
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
"""A tool's name in a header, such as `<|start|>assistant to=functions.now<|channel|>`."""

_NO_HEADER = re.compile(r"<\|start\|>assistant\s*(?!\s|to=|t\Z|to\Z|<\||<\Z)(?=.)", re.DOTALL)
"""`<|start|>assistant` with ordinary text behind it: the model forgot the rest of the header."""


def open_message(machine: modes.Machine, prompt_tail: str) -> modes.Mode | None:
    """The mode at the prompt's end; None if the prompt does not open a message."""
    start = prompt_tail.rfind(START)
    if start < 0:
        return None
    header, message_marker, _ = prompt_tail[start:].partition(MESSAGE)
    machine.mode = Header(machine, header, prompt_length=len(header))
    machine.mode.feed(message_marker)  # a complete header opens the message at once
    return machine.mode


def _header(machine: modes.Machine, lead: modes.Lead, marker: str) -> modes.Mode:
    """Begin another message."""
    _put_lead(machine, lead)
    return Header(machine, marker)


def _end(machine: modes.Machine, lead: modes.Lead, marker: str) -> modes.Mode:
    """End the message; a marker without a message is text."""
    _put_lead(machine, lead)
    if not machine.has_open_message:
        machine.sink.put(CallbackEvent.CONTENT, marker)
    machine.has_open_message = False
    machine.resume(line_start=True)
    return machine.mode


def _put_lead(machine: modes.Machine, lead: modes.Lead) -> None:
    """Show the whitespace before a marker; between messages it is a part of the format."""
    if machine.has_open_message and machine.sink.has_content:
        machine.sink.put(CallbackEvent.CONTENT, lead.text)


HARMONY_OPENERS: Mapping[str, modes.Opener] = {
    **dict.fromkeys(_ENDS, _end),
    START: _header,
    CHANNEL: _header,
}
"""The markers that have a meaning in ordinary text."""


class Header(modes.Mode):
    """Between `<|start|>` or `<|channel|>` and `<|message|>`.

    A header that ends without a message is malformed; its words count as reasoning. The first
    `prompt_length` characters come from the prompt, so they are not shown if the header is text.
    """

    def __init__(self, machine: modes.Machine, text: str, prompt_length: int = 0) -> None:
        self._machine = machine
        self._text = text
        self._prompt_length = prompt_length

    def feed(self, text: str) -> str:
        """Read up to `<|message|>`, or give up; returns what must be read again."""
        text = self._text + text
        behind_start = len(START) if text.startswith(START) else 0
        hit = _HEADER_END.search(text, behind_start)
        header = text if hit is None else text[: hit.start]
        if len(header) > _MAX_HEADER or _NO_HEADER.match(header):
            return self._give_up(text)
        if hit is None or hit.marker is None:
            self._text = text
            return ""
        rest = text[hit.start + len(hit.marker) :]
        if hit.marker == MESSAGE:
            self._open(header)
            return rest
        self._show_malformed(header)
        # `<|start|>` begins another header; a marker of the end has nothing to end here.
        return text[hit.start :] if hit.marker == START else rest

    def finish(self, *, truncated: bool) -> str:
        """Show a header that has not ended."""
        if CHANNEL not in self._text:
            return self._give_up(self._text)
        self._show_malformed(self._text)
        return ""

    def _give_up(self, text: str) -> str:
        """Take a header that never ends for ordinary text; returns what must be read again."""
        self._machine.resume(line_start=True)
        plain = text[self._prompt_length :].removeprefix(START + "assistant")
        # The first `<` is shown here: read again, it would open the same header again.
        if plain.startswith("<"):
            self._machine.sink.put(CallbackEvent.CONTENT, "<")
        return plain.removeprefix("<")

    def _show_malformed(self, header: str) -> None:
        """Show the words of a header that has no message."""
        words = header.removeprefix(START + "assistant").replace(CHANNEL, "").replace(START, "")
        self._machine.sink.put(CallbackEvent.THINKING, words)
        self._machine.has_open_message = False
        self._machine.resume(line_start=True)

    def _open(self, header: str) -> None:
        """Begin what the header announces: a call, reasoning, or content."""
        machine = self._machine
        channels = _CHANNEL_NAME.findall(header)
        recipient = _RECIPIENT.search(header)
        name = recipient[1] if recipient else ""
        generated_header = header[self._prompt_length :] + MESSAGE
        machine.has_open_message = True
        if machine.catalog.known(name):
            reader = CallReader(machine.catalog, f"{CHANNEL}to={name}{MESSAGE}", (_CALL,))
            lead = modes.Lead("", after_call=not machine.sink.has_content)
            machine.mode = modes.Candidate(machine, reader, lead, generated_header)
            return
        if channels and channels[-1] == "analysis":
            machine.mode = Analysis(machine)
            return
        if machine.sink.has_content:
            machine.sink.put(CallbackEvent.CONTENT, "\n\n")
        if name not in ("", "assistant", "all"):  # an unknown tool: nothing may get lost
            machine.sink.put(CallbackEvent.CONTENT, generated_header)
        machine.resume(line_start=True)


class Analysis(modes.HoldingMode):
    """The body of a message on the analysis channel."""

    def __init__(self, machine: modes.Machine) -> None:
        self._machine = machine
        self._is_first_piece = True

    def _read(self, text: str, *, final: bool) -> str:
        """Show reasoning up to a marker, which ordinary text then reads."""
        hit = _BOUNDARY.search(text, final=final)
        end = len(text) if hit is None else hit.start
        self._show(text[:end])
        if hit is None or hit.marker is None:
            self._held = text[end:]
            return ""
        self._machine.resume(line_start=True)
        return text[end:]

    def _show(self, text: str) -> None:
        """Show reasoning; a blank line separates it from that of an earlier message."""
        sink = self._machine.sink
        if text and self._is_first_piece:
            self._is_first_piece = False
            sink.part_reasoning()
        sink.put(CallbackEvent.THINKING, text)

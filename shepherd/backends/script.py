"""The language of scripts: one step a line, generations divided by lines of `---`.

context: 2048          before the first generation: the size of the context, in tokens
vision: no             also before: images are refused; without it nobody knows
think: some reasoning
text: some **answer**  a value that begins with a quote is a JSON string, for newlines
call: read_file {"path": "notes.txt"}
delay: 0.2             seconds
chunk: 4               characters per event from here on
full: 120              the context is full by so many tokens
problem: why the text, which was meant as a call, is none
error: upstream is gone
finish: length
# a comment
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

from msgspec import Struct

from shepherd import errors, events, messages

DEFAULT_CONTEXT = 32_768


class Say(Struct, frozen=True):
    """Text of the answer or of the reasoning."""

    text: str
    thinking: bool = False


class Call(Struct, frozen=True):
    """A tool call."""

    name: str
    arguments: messages.JsonObject


class Delay(Struct, frozen=True):
    """A pause, in seconds."""

    seconds: float


class Chunk(Struct, frozen=True):
    """Limits the characters of the following events."""

    characters: int


class Full(Struct, frozen=True):
    """ContextFullError by so many tokens."""

    tokens_over: int


class Problem(Struct, frozen=True):
    """The problem of a text that was meant as a call."""

    why: str


class Fail(Struct, frozen=True):
    """BackendError with this message."""

    message: str


class Finish(Struct, frozen=True):
    """The finish reason, if it is not the obvious one."""

    reason: events.FinishReason


Step = Say | Call | Delay | Chunk | Full | Problem | Fail | Finish


class Script(Struct, frozen=True):
    """Generations in order, each a list of steps; `context_size` in tokens.

    `vision` is what `ModelInfo.vision` says.
    """

    generations: tuple[tuple[Step, ...], ...]
    context_size: int = DEFAULT_CONTEXT
    vision: bool | None = None


def load_script(path: Path) -> Script:
    """Read a script; raises ConfigError naming file and line."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ConfigError(f"Cannot read the script {path}: {error}") from error
    return parse_script(source, str(path))


def parse_script(source: str, name: str = "script") -> Script:
    """Parse a script; raises ConfigError naming `name` and the line."""
    generations: list[list[Step]] = [[]]
    context_size, vision = DEFAULT_CONTEXT, None
    for number, line in enumerate(source.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.strip() == "---":
            generations.append([])
            continue
        key, _, value = map(str.strip, line.partition(":"))
        try:
            if key == "context":
                context_size = int(value)
            elif key == "vision":
                vision = {"yes": True, "no": False}[value]
            else:
                text = str(json.loads(value)) if value.startswith('"') else value
                generations[-1].append(_PARSERS[key](text))
        except (KeyError, ValueError) as error:
            raise errors.ConfigError(f"{name}:{number}: not a step: {line!r} ({error})") from error
    return Script(tuple(tuple(g) for g in generations if g), context_size, vision)


def _call(value: str) -> Call:
    """The step of a value such as `read_file {"path": "notes.txt"}`; raises ValueError."""
    name, _, arguments = value.partition(" ")
    parsed: object = json.loads(arguments) if arguments else {}
    if not isinstance(parsed, dict):
        raise ValueError("arguments must be a JSON object")
    return Call(name, cast(messages.JsonObject, parsed))


_PARSERS: dict[str, Callable[[str], Step]] = {
    "text": Say,
    "think": lambda value: Say(value, thinking=True),
    "call": _call,
    "delay": lambda value: Delay(float(value)),
    "chunk": lambda value: Chunk(max(1, int(value))),
    "full": lambda value: Full(int(value)),
    "problem": Problem,
    "error": Fail,
    "finish": lambda value: Finish(events.FinishReason(value)),
}

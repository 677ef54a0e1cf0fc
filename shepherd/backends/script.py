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
# a comment"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from shepherd.errors import ConfigError
from shepherd.events import FinishReason
from shepherd.messages import JsonObject

DEFAULT_CONTEXT = 32_768


@dataclass(frozen=True, slots=True)
class Say:
    """Text of the answer or of the reasoning."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Delay:
    """A pause, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """Limits the characters of the following events."""

    characters: int


@dataclass(frozen=True, slots=True)
class Full:
    """ContextFullError by so many tokens."""

    tokens_over: int


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem of a text that was meant as a call."""

    why: str


@dataclass(frozen=True, slots=True)
class Fail:
    """BackendError with this message."""

    message: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The finish reason, if it is not the obvious one."""

    reason: FinishReason


Step = Say | Call | Delay | Chunk | Full | Problem | Fail | Finish


@dataclass(frozen=True, slots=True)
class Script:
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
        raise ConfigError(f"Cannot read the script {path}: {error}") from error
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
        key, _, value = line.partition(":")
        try:
            if key.strip() == "context":
                context_size = int(value)
            elif key.strip() == "vision":
                vision = {"yes": True, "no": False}[value.strip()]
            else:
                generations[-1].append(_PARSERS[key.strip()](_value(value)))
        except (KeyError, ValueError) as error:
            raise ConfigError(f"{name}:{number}: not a step: {line!r} ({error})") from error
    return Script(tuple(tuple(g) for g in generations if g), context_size, vision)


def _value(raw: str) -> str:
    value = raw.strip()
    return str(json.loads(value)) if value.startswith('"') else value


def _call(value: str) -> Call:
    name, _, arguments = value.partition(" ")
    parsed: object = json.loads(arguments) if arguments else {}
    if not isinstance(parsed, dict):
        raise ValueError("arguments must be a JSON object")
    return Call(name, cast(JsonObject, parsed))


_PARSERS: dict[str, Callable[[str], Step]] = {
    "text": Say,
    "think": lambda value: Say(value, thinking=True),
    "call": _call,
    "delay": lambda value: Delay(float(value)),
    "chunk": lambda value: Chunk(max(1, int(value))),
    "full": lambda value: Full(int(value)),
    "problem": Problem,
    "error": Fail,
    "finish": lambda value: Finish(FinishReason(value)),
}

"""The differences between generations of Claude, by the model's name.

A name without a version of Claude is another model behind the same API (llama.cpp's server, a
gateway). It gets the parameters that the API has always had. An unknown generation is treated like
the newest.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class Off(StrEnum):
    """The `thinking` that keeps a model from thinking."""

    UNSAID = ""  # it thinks only on request
    DISABLED = "disabled"
    BETWEEN_TOOLS = "between_tools"
    NEVER = "never"  # thinking can't be turned off


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a model accepts; the defaults are those of a model that is not Claude.

    `adaptive`: it decides itself how much to think, and refuses a budget. `hides_thoughts`: it
    shows its thoughts only on request. `bound`: its thoughts are valid only behind exactly the same
    system prompt, tools and messages. `one_sampler`: temperature or top_p, not both.
    `forced_calls`: a request can force a call. `formats`: a request can enforce a JSON schema.
    `output_limit` is in tokens, 0 = unknown. `efforts` are those of ours that it accepts.
    """

    adaptive: bool = False
    off: Off = Off.UNSAID
    hides_thoughts: bool = False
    bound: bool = False
    sampling: bool = True
    one_sampler: bool = False
    forced_calls: bool = True
    formats: bool = False
    output_limit: int = 0
    efforts: tuple[str, ...] = ()


_NAME = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_OLD_NAME = re.compile(r"claude-(\d)(?:[-.](\d))?-([a-z]+)")
_PREVIEW = re.compile(r"claude-(mythos)-preview")

_OLD_EFFORTS = ("low", "medium", "high")
_ALWAYS_THINKING = ("fable", "mythos")


def dialect_of(model: str) -> Dialect:
    """The dialect of the model with this name, in the spelling of any of Claude's vendors."""
    if match := _NAME.search(model):
        return _claude(match[1], int(match[2]), int(match[3] or 0))
    if match := _OLD_NAME.search(model):
        return _claude(match[3], int(match[1]), int(match[2] or 0))
    return _claude("mythos", 5, 0) if _PREVIEW.search(model) else Dialect()


def _claude(family: str, major: int, minor: int) -> Dialect:
    version = (major, minor)
    if version < (4, 6):
        return Dialect(
            one_sampler=version >= (4, 1),
            formats=version >= (4, 5),
            output_limit=_old_limit(family, version),
        )
    return Dialect(
        adaptive=True,
        off=_off(family, version),
        hides_thoughts=version >= (4, 7),
        bound=version >= (5, 1),
        sampling=version < (4, 7),
        one_sampler=True,
        forced_calls=version < (5, 1) or family == "haiku",
        formats=True,
        output_limit=128_000,
        efforts=("low", "medium", "high", "xhigh") if version >= (4, 7) else _OLD_EFFORTS,
    )


def _off(family: str, version: tuple[int, int]) -> Off:
    if version < (5, 0):
        return Off.UNSAID
    if family in _ALWAYS_THINKING:
        return Off.NEVER
    known = {
        ("opus", 5, 0): Off.DISABLED,
        ("sonnet", 5, 0): Off.DISABLED,
        ("haiku", 5, 5): Off.DISABLED,
        ("sonnet", 5, 5): Off.BETWEEN_TOOLS,
    }
    return known.get((family, *version), Off.NEVER)


def _old_limit(family: str, version: tuple[int, int]) -> int:
    if version < (3, 5):
        return 4096
    if version < (3, 7):
        return 8192
    return 32_000 if family == "opus" and version < (4, 5) else 64_000

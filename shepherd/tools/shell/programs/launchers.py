"""Programs that start another one by name: `python -m pytest`, `npx eslint`, `uv run mypy`."""

import re
from collections.abc import Iterator, Sequence

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*\Z")
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_DIRECT = frozenset({"npx", "bunx", "uvx", "pnpx"})
_RUN = {
    "uv": ("run", "tool run"),
    "poetry": ("run",),
    "pdm": ("run",),
    "hatch": ("run",),
    "pipenv": ("run",),
    "rye": ("run",),
    "pixi": ("run",),
    "pipx": ("run",),
    "bundle": ("exec",),
    "npm": ("exec", "x"),
    "pnpm": ("exec", "dlx"),
    "yarn": ("exec", "dlx", "run", ""),
    "bun": ("x",),
    "coverage": ("run",),
    "composer": ("exec",),
    "mise": ("exec", "x"),
    "rbenv": ("exec",),
    "pyenv": ("exec",),
    "direnv": ("exec .",),
    "dotnet": ("tool run",),
}
"""The subcommands that are followed by the other program."""


def launched(program: str, words: Sequence[str]) -> Iterator[int]:
    """The indices of the words that may name the started program.

    There are several if a word may also be the value of the option before it.
    """
    if _PYTHON.match(program):
        yield from _module(words)
    elif program in _DIRECT:
        yield from _operands(words, 1)
    for subcommand in _RUN.get(program, ()):
        start = 1 + len(subcommand.split())
        if list(words[1:start]) == subcommand.split():
            yield from _operands(words, start)


def _module(words: Sequence[str]) -> Iterator[int]:
    index = 1
    while index < len(words) and words[index].startswith("-"):
        if re.fullmatch(r"-[A-Za-z]*m", words[index]):
            yield index + 1
            return
        index += 1 + (words[index] in _WITH_VALUE)


def _operands(words: Sequence[str], start: int) -> Iterator[int]:
    for index in range(start, len(words)):
        if not words[index].startswith("-"):
            yield index
            if not words[index - 1].startswith("-") or index == start:
                return

"""Programs that start another one by name: `python -m pytest`, `npx eslint`, `uv run mypy`."""

import re
from collections.abc import Sequence

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*\Z")
_WITH_VALUE = frozenset({"-W", "-X", "-p", "--package", "--check-hash-based-pycs"})
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
"""The subcommands behind which the other program stands."""


def launched(program: str, words: Sequence[str]) -> int:
    """The index of the word that names the program which is started; 0 if there is none."""
    if _PYTHON.match(program):
        return _module(words)
    if program in _DIRECT:
        return _operand(words, 1)
    for subcommand in _RUN.get(program, ()):
        start = 1 + len(subcommand.split())
        if list(words[1:start]) == subcommand.split():
            index = _operand(words, start)
            is_coverage = program == "coverage" and "-m" in words[:index]
            return index if program != "coverage" or is_coverage else 0
    return 0


def _module(words: Sequence[str]) -> int:
    index = 1
    while index < len(words) and words[index].startswith("-"):
        if re.fullmatch(r"-[A-Za-z]*m", words[index]):
            return index + 1 if index + 1 < len(words) else 0
        if re.match(r"-[A-Za-z]*c", words[index]):
            return 0
        index += 1 + (words[index] in _WITH_VALUE)
    return 0


def _operand(words: Sequence[str], start: int) -> int:
    index = start
    while index < len(words) and words[index].startswith("-"):
        index += 1 + (words[index] in _WITH_VALUE)
    return index if index < len(words) else 0

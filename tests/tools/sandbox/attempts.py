"""Attempts to get out of a box, as data.

Each line of escapes/*.txt is one for bash; each part of programs.txt is one for Python and follows
prelude.txt. Variables name what is outside: OUTSIDE (a directory with `file`, `dir` and `run.sh`),
VICTIM and PARENT (processes), TCP and UDP (ports), SOCKET and ABSTRACT (local sockets). An attempt
prints ESCAPED if it sees by itself that it got out; the test looks from outside at all the rest.
"""

from pathlib import Path

_FOLDER = Path(__file__).with_name("escapes")
_LINES = ("writes", "protected", "reads", "sockets", "survivors")

PRELUDE = (_FOLDER / "prelude.txt").read_text("utf-8")


def attempts() -> dict[str, list[str]]:
    """All of them, by what they try."""
    corpus = {name: _text(name).splitlines() for name in _LINES}
    return {**corpus, "programs": _text("programs").split("\n---\n")}


def _text(name: str) -> str:
    return (_FOLDER / f"{name}.txt").read_text("utf-8").strip()

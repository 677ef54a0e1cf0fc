"""The screens of docs/first-hour.md are what the program shows: the hour is played again.

Numbers and places may differ, and `…` stands for any text in a line, or for any lines.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from shepherd.catalog.local_models import local_models
from shepherd.models import builtin_model
from shepherd.version import __version__
from tests.cli.hub import hub
from tests.e2e.terminal import CTRL_D, Terminal
from tests.forked import write_forking

PAGE = (Path(__file__).parents[2] / "docs" / "first-hour.md").read_text("utf-8")
SCREENS = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
FILE, REPOSITORY = "Small-Q8_0.gguf", "team/Small-GGUF"
NEEDS_A_MACHINE = "shepherd model pick"
PROMPT = r"(?m)^\$\s*\Z"
FREE = re.compile(r"(\d[\d,.]*|…|~/)")
FREE_AS = {"…": ".*", "~/": r"\S*/"}


def steps() -> Iterator[tuple[str, list[str]]]:
    """What is typed, behind its prompt, and the lines that follow it; "" for a yes."""
    for screen in SCREENS:
        typed, shown = "", list[str]()
        for line in filter(str.strip, screen.splitlines()):
            if re.match(r"[$›] [^0-9]", line):
                if shown:
                    yield typed, shown
                typed, shown = line, []
            shown.append(line)
        yield typed, shown


def expression(lines: list[str]) -> str:
    """What fits these lines; those of an agent itself are left out."""
    ends = [number for number, line in enumerate(lines) if line.startswith("shepherd: ")]
    lines = lines[: ends[-1] + 1] if ends else lines
    return "\n".join(
        "(?:.*\n)*?.*"
        if line == "…"
        else re.escape(line)
        if line.startswith("Shepherd ")
        else "".join(
            FREE_AS.get(part, r"\d[\d,.]*" if part[:1].isdigit() else re.escape(part))
            for part in FREE.split(line)
        )
        for line in lines
    )


class Hour:
    """Plays the steps in a shell."""

    def __init__(self, shell: Terminal, url: str) -> None:
        self._shell = shell
        self._url = url
        self._talks = False
        self._typed = ""

    def play(self, typed: str, shown: list[str]) -> None:
        if not typed:
            self._shell.choose("y")
        elif typed == "$ make chat":
            self._say("$ shepherd")
            shown = [line for line in shown[1:] if not line.startswith("[setup]")]
        else:
            self._say(re.sub(r"http://127\S+", self._url, typed))
        text = "\n".join(shown)
        if "[y/N]: y" in text:
            self._shell.wait_for(r"\[y/N\]:")
            self._shell.settle()
            self._shell.send("y\r")
        wanted = re.compile(f"^{expression(shown)}", re.MULTILINE)
        try:
            self._shell.wait_until(lambda: wanted.search(self._screen()))
        except AssertionError as error:
            raise AssertionError(f"the page says:\n{text}\n\n{self._screen()}") from error

    def _say(self, typed: str) -> None:
        """Type a line, in the program or in the shell, where it goes."""
        if typed.startswith("$ ") and self._talks:
            self._shell.send(CTRL_D)
        if typed.startswith("$ "):
            self._shell.wait_for(PROMPT)
            self._talks = typed == "$ shepherd"
        elif not self._talks:
            raise AssertionError(f"nobody listens to {typed}")
        else:
            self._shell.wait_for(r"approve: ask · \w+\s*\Z")
        self._shell.say(typed[2:])
        self._typed = typed

    def _screen(self) -> str:
        """What the terminal shows since the last line that was typed, without empty lines."""
        lines = "\n".join(filter(str.strip, self._shell.text().splitlines()))
        return lines[max(lines.rfind(self._typed), 0) :]


def test_the_hour_goes_as_the_page_tells() -> None:
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        home = Path(place)
        for folder in ("bin", "notes", "shepherd"):
            (home / folder).mkdir()
        (home / "notes" / "notes.txt").write_text("water the roses\nbuy bread\n")
        (home / "bin" / "pi").write_text("#!/bin/sh\n")
        (home / "bin" / "pi").chmod(0o755)
        write_forking(home / "bin" / "shepherd")
        env = {"HOME": place, "PATH": f"{home}/bin:/usr/bin:/bin", "PS1": "$ "}
        env |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
        model = {FILE: builtin_model().read_bytes()}
        with (
            hub(model, REPOSITORY) as server,
            Terminal(shell, home / "shepherd", env, columns=250, rows=60) as terminal,
        ):
            hour = Hour(terminal, server.url)
            for typed, shown in steps():
                if not typed.endswith(NEEDS_A_MACHINE):
                    hour.play(typed, shown)


def test_the_page_is_of_this_version() -> None:
    assert set(re.findall(r"Shepherd (\d\S*)", PAGE)) == {__version__}


def test_the_models_of_the_list_are_known() -> None:
    (rows,) = (shown[2:-1] for typed, shown in steps() if typed.endswith(NEEDS_A_MACHINE))
    named = {row.split()[0] for row in rows if "Q4_K_M" in row or "Q8_0" in row}
    assert len(named) > 5
    assert named <= {model.name for model in local_models()}

"""Attacks as data: `load("shell")` reads `shell.toml` in this directory.

Every file holds `[[attack]]` tables:

- `id`: unique in the file; `kind`: the class of attack;
- `line`: what the model asks to run; a list of words runs without a shell;
- `rules`: the user's rules, as in `allow shell echo *`;
- `files`: name to content, made before; `links`: name to target;
- `setup`: a shell line that prepares the place, run by the test itself;
- `environment`: variables of the process, as the user might have set them;
- `repeat`: a placeholder in `line`, with what replaces it and how often;
- `must_ask`: the line may not run without a question, whatever it would do;
- `mode`: `ask` (the default), `edits` or `all`.

`{work}` (the working directory), `{outside}` (beside it) and `{home}` stand for paths. In every
attack nothing named `pwned*` may appear anywhere, nothing outside may change, and the text
`SECRET` (which `.env` holds) may not be told.
"""

import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SECRET = "CANARY-5d0c"
_STANDARD_FILES = {".env": f"PASSWORD={SECRET}\n", "a.txt": "fine\n", "sub/b.txt": "fine\n"}


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of one attack, below `base`."""

    base: Path

    @property
    def work(self) -> Path:
        """The working directory."""
        return self.base / "work"

    @property
    def outside(self) -> Path:
        """A directory that nothing allows to touch."""
        return self.base / "outside"

    @property
    def home(self) -> Path:
        """The home directory."""
        return self.base / "home"

    def fill(self, text: str) -> str:
        """The text with the names of these directories."""
        for name in ("work", "outside", "home"):
            text = text.replace(f"{{{name}}}", str(self.base / name))
        return text


@dataclass(frozen=True, slots=True)
class Attack:
    """One entry; the fields are those of the file."""

    id: str
    kind: str
    line: str | list[str]
    rules: list[str] = field(default_factory=list[str])
    files: dict[str, str] = field(default_factory=dict[str, str])
    links: dict[str, str] = field(default_factory=dict[str, str])
    setup: str = ""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    repeat: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    must_ask: bool = False
    mode: str = "ask"

    def prepare(self, base: Path) -> Place:
        """Make the directories and files below `base`."""
        place = Place(base.resolve())
        for directory in (place.work, place.outside, place.home):
            directory.mkdir(parents=True)
        (place.outside / "secret.txt").write_text(SECRET)
        for name, content in {**_STANDARD_FILES, **self.files}.items():
            path = place.work / place.fill(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(place.fill(content))
        for name, target in self.links.items():
            (place.work / place.fill(name)).symlink_to(place.fill(target))
        if self.setup:
            line = ["bash", "-ec", place.fill(self.setup)]
            subprocess.run(line, cwd=place.work, check=True, capture_output=True)
        return place

    def command(self, place: Place) -> str | list[str]:
        """What the model asks to run there."""
        if isinstance(self.line, list):
            return [place.fill(word) for word in self.line]
        line = place.fill(self.line)
        for name, (text, times) in self.repeat.items():
            line = line.replace(name, text * times)
        return line


def load(name: str) -> list[Attack]:
    """The attacks of a file in this directory."""
    with (HERE / f"{name}.toml").open("rb") as file:
        entries: list[dict[str, Any]] = tomllib.load(file)["attack"]
    attacks = [Attack(**entry) for entry in entries]
    if len({attack.id for attack in attacks}) != len(attacks):
        raise ValueError(f"two attacks of {name} have the same id")
    return attacks


def names() -> list[str]:
    """The files of attacks."""
    return sorted(path.stem for path in HERE.glob("*.toml"))

"""Completion after `!`."""

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from shepherd.cli.repl.completion import PromptCompleter


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work, programs = tmp_path / "work", tmp_path / "bin"
    (work / "sub").mkdir(parents=True)
    programs.mkdir()
    for name in ("sub/a b.txt", "sub/ab.txt", ".hidden", "notes.txt"):
        (work / name).write_text("")
    for name, mode in (("gitty", 0o755), ("git", 0o755), ("gin.txt", 0o644)):
        (programs / name).write_text("")
        (programs / name).chmod(mode)
    monkeypatch.setenv("PATH", f"{programs}:{tmp_path}/missing")
    return work


def offers(cwd: Path, text: str) -> list[str]:
    completer = PromptCompleter([], cwd)
    found = completer.get_completions(Document(text), CompleteEvent())
    return [text[: len(text) + offer.start_position] + offer.text for offer in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!gi", ["!git", "!gitty"]),
        ("!!gitt", ["!!gitty"]),
        ("!", []),
        ("!ls | gitt", ["!ls | gitty"]),
        ("!cat no", ["!cat notes.txt"]),
        ("!cat ", ["!cat notes.txt", "!cat sub/"]),
        ("!cat .h", ["!cat .hidden"]),
        ("!cat sub/a", [r"!cat sub/a\ b.txt", "!cat sub/ab.txt"]),
        (r"!cat sub/a\ ", [r"!cat sub/a\ b.txt"]),
        ("!sub/ab", ["!sub/ab.txt"]),
        ("!cat >no", ["!cat >notes.txt"]),
        ("!cat missing/x", []),
        ("!cat ~nobody-here/x", []),
        ("a !gi", []),
    ],
)
def test_programs_and_paths(cwd: Path, text: str, expected: list[str]) -> None:
    assert offers(cwd, text) == expected

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from shepherd.cli.repl.completion import MAX_COMPLETIONS, PromptCompleter
from shepherd.conversation.commands.command import Command


async def nothing(argument: str) -> None:
    """The command does nothing."""


def entry(
    name: str, choices: Callable[[], Iterable[str]] | None = None, *, by_words: bool = False
) -> Command[str]:
    return Command(name, "", "what it does", nothing, choices, by_words)


@pytest.fixture
def completed(tmp_path: Path) -> Callable[[str], list[str]]:
    """The line as it reads after each completion."""
    for name in ("src/main.py", "src/deep/module.py", "my notes.txt", ".hidden", "README.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "bad\x1b[2J").write_text("x")
    commands = [entry("help"), entry("thinking", lambda: ["on", "off"]), entry("tools")]
    lines = ["set", "set one red", "set one blue", "set two red", "show one"]
    commands.append(entry("colour", lambda: lines, by_words=True))
    completer = PromptCompleter(commands, tmp_path)

    def complete(text: str) -> list[str]:
        found = completer.get_completions(Document(text), CompleteEvent())
        return [text[: len(text) + c.start_position] + c.text for c in found]

    return complete


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("/", ["/help", "/thinking", "/tools", "/colour"]),
        ("/t", ["/thinking", "/tools"]),
        ("/thinking o", ["/thinking on", "/thinking off"]),
        ("/help ", []),
        ("/colour ", ["/colour set", "/colour show"]),
        ("/colour set ", ["/colour set one", "/colour set two"]),
        ("/colour set one b", ["/colour set one blue"]),
        ("no /t", []),
        ("see @src/m", ["see @src/main.py"]),
        ("see @read", ["see @README.md"]),
        ("see @src", ["see @src/"]),
        ("@modu", ["@src/deep/module.py"]),
        ("@my", ['@"my notes.txt"']),
        ('@"my no', ['@"my notes.txt"']),
        ("@.h", ["@.hidden"]),
        ("me@src", []),
        ("@nothing", []),
        ("@bad", []),
        ("@~nobody-here/n", []),
    ],
)
def test_completions(completed: Callable[[str], list[str]], text: str, lines: list[str]) -> None:
    assert completed(text) == lines


def test_a_large_directory_is_offered_in_part(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"file{number}").touch()
    completer = PromptCompleter([], tmp_path)
    found = list(completer.get_completions(Document("@file"), CompleteEvent()))
    assert len(found) == MAX_COMPLETIONS


def test_files_of_a_repository_are_ranked_without_ignored_ones(tmp_path: Path) -> None:
    for name in ("a/needle.py", "b/my_needle.py", "c/n-e-e-dle.py", "out/needle.o", "needles/x"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("out/\n")
    completer = PromptCompleter([], tmp_path)

    def offered(text: str) -> list[str]:
        return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]

    assert offered("@need") == ["needles/", "a/needle.py", "b/my_needle.py", "c/n-e-e-dle.py"]
    assert offered("@ou") == []
    assert offered("@a/ndl") == ["a/needle.py"]

"""Small things of a working day: unusual places, indents, names of other agents' commands."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.forked import SHEPHERD, run_forked

READY = "approve: ask"


def test_a_deleted_working_directory_is_a_sentence(tmp_path: Path, env: dict[str, str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && {SHEPHERD} -e hi"
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "shepherd: the working directory was deleted; go to another one.\n"


@pytest.mark.parametrize("place", ["/dev/null", "a directory"])
def test_settings_that_can_not_be_read_are_a_sentence(
    place: str, home: Path, env: dict[str, str]
) -> None:
    if place == "a directory":
        (home / ".config/shepherd/config.toml").mkdir(parents=True)
    else:
        env = env | {"HOME": place}
    done = run_forked([SHEPHERD, "-e", "hi"], env)
    assert done.returncode == 1
    assert "config.toml: can't be read: " in done.stderr
    assert "Errno" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_home_that_is_no_directory_is_a_sentence(start: Start, env: dict[str, str]) -> None:
    terminal = start("text: Never.\n", env={"HOME": "/dev/null"})
    terminal.wait_for("shepherd: /dev/null.*: can't be read: Not a directory")
    assert terminal.wait_exit() == 1
    for arguments, says in (
        (["doctor"], "directories  broken"),
        (["sessions", "list"], "There are no saved sessions"),
    ):
        done = run_forked([SHEPHERD, *arguments], env | {"HOME": "/dev/null"})
        assert says in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_a_posix_locale_breaks_no_letters(tmp_path: Path, env: dict[str, str]) -> None:
    script = tmp_path / "script.txt"
    script.write_text("text: Größe · 日本\n", encoding="utf-8")
    done = subprocess.run(
        [SHEPHERD, "--model", f"script:{script}", "-e", "hi"],
        env=env | {"LC_ALL": "POSIX", "LANG": "C"},
        capture_output=True,
        check=False,
    )
    assert done.stdout.decode().strip() == "Größe · 日本"


def test_results_and_quoted_code_keep_their_indent(start: Start, work: Path) -> None:
    code = "def f(a, b):\n    if a:\n        return a - b\n"
    (work / "f.py").write_text(code)
    text = "text: " + repr(f"It says:\n{code}print(f(1, 2))\n").replace("'", '"')
    terminal = start(
        f'call: execute_command {{"command": "cat f.py"}}\n---\n{text}\n', "--approve", "all"
    )
    terminal.wait_for("approve: all")
    terminal.say("hello")
    terminal.wait_for(r"print\(f")
    shown = terminal.settle()
    for margin in ("    ", ""):  # of the result, and of the answer
        assert f"\n{margin}    if a:\n{margin}        return a - b\n" in shown
    assert "\nprint(f(1, 2))\n" in shown


@pytest.mark.parametrize(
    ("typed", "meant"), [("/cost", "/usage"), ("/sessions", "/resume"), ("/config", "`shepherd c")]
)
def test_a_command_of_another_agent_is_explained(start: Start, typed: str, meant: str) -> None:
    terminal = start("text: Never.\n")
    terminal.wait_for(READY)
    terminal.say(typed)
    terminal.wait_for(f"There is no command {typed}.*{meant}")


def test_the_first_answer_says_what_was_read_before_it(start: Start) -> None:
    terminal = start("text: One.\n---\ntext: Two.\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for(r"\(read \d+ tokens before the first word\)")
    terminal.say("again")
    terminal.wait_for("Two")
    assert terminal.settle().count("before the first word") == 1

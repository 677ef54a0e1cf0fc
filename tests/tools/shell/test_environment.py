"""What a command inherits: nothing that leads git elsewhere or waits for a person."""

import subprocess
from pathlib import Path

import pytest

from shepherd.tools.program import safe_environment
from tests.tools.workshop import Workshop


def git(directory: Path, *words: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def repository(workshop: Workshop) -> Workshop:
    git(workshop.root, "init", "-q")
    (workshop.root / "a").write_text("a\n")
    git(workshop.root, "add", "a")
    git(workshop.root, "commit", "-qm", "a")
    return workshop


@pytest.mark.parametrize("line", ["git status", "git diff", "git ls-files -m", "git add ."])
async def test_no_monitor_of_a_repository_runs(repository: Workshop, line: str) -> None:
    git(repository.root, "config", "core.fsmonitor", "touch pwned; false")
    assert (await repository.result("execute_command", command=line)).ok
    assert not (repository.root / "pwned").exists()


async def test_no_repository_is_found_among_the_files(repository: Workshop) -> None:
    bare = repository.root / "docs"
    git(repository.root, "init", "-q", "--bare", str(bare))
    git(bare, "--git-dir=.", "config", "alias.st", "!touch pwned")
    for command in ("git st", "git status"):
        assert not (await repository.result("execute_command", command=command, cwd="docs")).ok
    assert not list(repository.root.rglob("pwned"))


async def test_an_inherited_repository_is_not_used(
    repository: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository.outside, "init", "-q")
    monkeypatch.setenv("GIT_DIR", f"{repository.outside}/.git")
    monkeypatch.setenv("GIT_WORK_TREE", str(repository.outside))
    text = await repository.call("execute_command", command="git rev-parse --show-toplevel")
    assert text == str(repository.root)


async def test_nothing_waits_for_an_editor(repository: Workshop) -> None:
    git(repository.root, "config", "core.editor", "sleep 1000; true")
    git(repository.root, "config", "user.name", "A")
    git(repository.root, "config", "user.email", "a@example.com")
    text = await repository.call("execute_command", command="git commit --allow-empty")
    assert "empty commit message" in text
    amended = await repository.result("execute_command", command="git commit --amend")
    assert amended.ok


async def test_no_program_is_taken_for_a_remote(repository: Workshop) -> None:
    git(repository.root, "config", "protocol.ext.allow", "always")
    command = 'git ls-remote "ext::sh -c touch% pwned"'
    assert "not allowed" in await repository.call("execute_command", command=command)
    assert not (repository.root / "pwned").exists()


async def test_the_shell_reads_a_line_as_the_rules_do(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOBIGNORE", "x")
    monkeypatch.setenv("CDPATH", str(workshop.outside))
    monkeypatch.setenv("BASHOPTS", "extglob:dotglob")
    (workshop.root / ".hidden").touch()
    (workshop.outside / "sub").mkdir()
    assert await workshop.call("execute_command", command="echo *; cd sub 2>/dev/null; pwd") == (
        f"*\n{workshop.root}"
    )


@pytest.mark.parametrize(("count", "first"), [("1", 1), ("", 0), ("x", 0)])
def test_settings_that_were_given_stay(
    monkeypatch: pytest.MonkeyPatch, count: str, first: int
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", count)
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "a.b")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "c")
    environment = safe_environment()
    total = int(environment["GIT_CONFIG_COUNT"])
    keys = [environment[f"GIT_CONFIG_KEY_{number}"] for number in range(total)]
    assert ("a.b" in keys) is (first == 1)
    assert "core.fsmonitor" in keys

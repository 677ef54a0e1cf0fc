"""What Shepherd starts itself is never a program that lies in the working directory."""

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from shepherd.cli.repl.completion import FileList
from shepherd.conversation.own_commands import OwnCommands
from shepherd.events import ignore_events
from shepherd.own_programs import find_editor, packaged_program, path_outside
from shepherd.tools.program import git_paths
from shepherd.tools.sandbox.sandbox import find_box
from tests.tools.workshop import open_workshop

PROGRAMS = ("bash", "bwrap", "git", "rg", "rm", "sh")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that is first in PATH, with a trap for each program."""
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "text").write_text("a line\n", "utf-8")
    (root / ".env").write_text("KEY=1\n", "utf-8")
    (root / "bin").mkdir()
    for name in PROGRAMS:
        trap = root / "bin" / name
        trap.write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/trapped\nexit 1\n", "utf-8")
        trap.chmod(0o755)
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", f"{root}/bin:bin:.:{root}/node_modules/.bin:~/bin:/usr/bin:/bin")
    monkeypatch.delenv("SHELL", raising=False)
    return root


def _trapped(project: Path) -> str:
    path = project.parent / "trapped"
    return path.read_text("utf-8") if path.exists() else ""


def test_the_sandbox(project: Path) -> None:
    assert find_box().box is not None
    assert not _trapped(project)


async def test_tools(project: Path) -> None:
    workshop = open_workshop(project.parent)
    assert "text" in await workshop.call("grep", pattern="line")
    assert await workshop.call("execute_command", command="echo in a shell") == "in a shell"
    await asyncio.to_thread(git_paths, project, ["ls-files", "-z"])
    assert not _trapped(project)


async def test_own_commands(project: Path) -> None:
    commands = OwnCommands(project, project.parent / "spill", {}, lambda: 0)
    command = await commands.run("echo in a shell", ignore_events, shared=False)
    assert command.output.strip() == "in a shell"
    assert not _trapped(project)


def test_the_list_of_files(project: Path) -> None:
    assert FileList(project).ranked("text")
    assert not _trapped(project)


def test_a_path_without_a_directory(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "link").symlink_to("bin")
    entries = [tmp_path / "bin", Path("bin"), tmp_path / "link", tmp_path.parent, Path("/usr/bin")]
    path = ":".join(map(str, entries))

    assert path_outside(tmp_path, path) == f"{tmp_path.parent}:/usr/bin"


def test_the_root_holds_every_program() -> None:
    assert path_outside(Path("/"), "/usr/bin:bin:/bin") == "/usr/bin:/bin"


@pytest.mark.parametrize("start", ["-m", "PYTHONPATH"])
def test_no_module_of_the_working_directory_is_imported(project: Path, start: str) -> None:
    for name in ("typer", "rich", "httpx"):
        trap = f"open({str(project.parent / 'trapped')!r}, 'a').write({name!r})\n"
        (project / f"{name}.py").write_text(trap, "utf-8")
    words, env = ["-m", "shepherd"], {**os.environ, "PYTHONPATH": ""}
    if start == "PYTHONPATH":  # its first entry is empty
        words, env = ["-P", "-m", "shepherd"], {**os.environ, "PYTHONPATH": ":/usr"}

    command = [sys.executable, *words, "--help"]
    ended = subprocess.run(command, env=env, capture_output=True, check=False)

    assert b"--approve" in ended.stdout
    assert not _trapped(project)


def test_the_editor(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "sh -e")
    monkeypatch.setenv("VISUAL", "missing --wait")
    find_editor(project)
    assert os.environ["EDITOR"] in ("/usr/bin/sh -e", "/bin/sh -e")
    assert "VISUAL" not in os.environ


async def test_a_program_of_shepherd_in_the_project_is_kept_as_it_was_at_the_start(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(f"{sysconfig.get_path('scripts')}/rg", project / "bin/rg")

    def scripts(_name: str) -> str:
        return str(project / "bin")

    monkeypatch.setattr("sysconfig.get_path", scripts)
    monkeypatch.setattr("shepherd.own_programs._SYSTEM", ())
    packaged_program.cache_clear()
    workshop = open_workshop(project.parent)
    (project / "bin/rg").write_text(f"#!/bin/sh\necho rg >> {project.parent}/trapped\n")
    assert "text" in await workshop.call("grep", pattern="line")
    assert not _trapped(project)
    packaged_program.cache_clear()

"""`-e … --approve review` prints a patch; `--apply` also makes the changes."""

import json
import os
import subprocess

from tests.cli.program import Program
from tests.tools.sandbox.boxes import LAYERED, need
from tests.undo.project import view

LINE = (
    "cat new.txt; sed -i s/two/2/ src/a.txt; mv notes.txt 'moved é.txt'; chmod 755 src/run; "
    "printf '\\0\\1' > bin.dat; ln -s new.txt link; rm src/gone"
)
SCRIPT = (
    'call: write_file {"path": "new.txt", "content": "alpha\\n"}\n---\n'
    f"call: execute_command {json.dumps({'command': LINE})}\n---\n"
    "text: All done.\n"
)


def make_files(program: Program) -> None:
    (program.work / "src").mkdir()
    (program.work / "src" / "a.txt").write_text("one\ntwo\n")
    (program.work / "src" / "run").write_text("#!/bin/sh\n")
    (program.work / "src" / "gone").write_text("x\n")
    (program.work / "notes.txt").write_text("notes\n")


def test_the_patch_is_the_change_that_apply_makes(program: Program) -> None:
    need(LAYERED[0])
    make_files(program)
    before = view(program.work)
    done = program.run_scripted(SCRIPT, "-e", "go", "--approve", "review")
    assert (done.returncode, "All done." in done.stderr) == (0, True)
    assert view(program.work) == before

    patched = program.work.parent / "patched"
    patched.mkdir()
    subprocess.run(["cp", "-a", f"{program.work}/.", patched], check=True)
    git = ["git", "-C", patched, "apply", "--whitespace=nowarn"]
    subprocess.run(git, input=done.stdout.encode(), check=True, env={**os.environ})

    again = program.run_scripted(SCRIPT, "-e", "go", "--approve", "review", "--apply")
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert view(program.work) == view(patched) != before


def test_apply_needs_a_review(program: Program) -> None:
    done = program.run_scripted(SCRIPT, "-e", "go", "--apply")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--approve review" in done.stderr
    assert program.run("--apply").returncode == 2

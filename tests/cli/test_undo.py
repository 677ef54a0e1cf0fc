"""`shepherd undo`: what a session changed, listed, shown and taken back afterwards."""

import json
from pathlib import Path

from tests.cli.program import Program

LINE = "rm -rf src; printf 'new\\n' > made; chmod 600 run"
SCRIPT = f"call: execute_command {json.dumps({'command': LINE})}\n---\ntext: done\n"


def test_undo_outside_of_a_session(program: Program, tmp_path: Path) -> None:
    assert program.run("undo", "list").stdout == ""
    (program.work / "src").mkdir()
    (program.work / "src" / "data").write_bytes(b"\0" * 2048)
    (program.work / "src" / "link").symlink_to("data")
    (program.work / "run").write_text("#!/bin/sh\n")
    (program.work / "run").chmod(0o755)
    program.run_scripted(SCRIPT, "--approve", "all", "-e", "go")
    assert not (program.work / "src").exists()

    (line,) = program.run("undo", "list").stdout.splitlines()
    assert "changed 1, deleted 2, made 1" in line
    point = line.split()[0]
    shown = program.run("undo", "show", point).stdout
    assert "src/data: deleted (2,048 bytes)" in shown
    assert "-symbolic link to data" in shown
    assert "run: mode 755 became 600" in shown
    assert "+new" in shown

    assert "src/data" in program.run("undo", "restore", point, "src").stdout
    assert (program.work / "src" / "link").readlink() == Path("data")
    assert (program.work / "made").exists()
    assert json.loads(program.run("undo", "restore", point, "--json").stdout)["removed"] == ["made"]
    (program.work / "run").write_text("mine\n")
    refused = program.run("undo", "restore", point)
    assert refused.returncode == 1
    assert "-mine" in refused.stdout
    assert "changed since" in refused.stderr
    assert program.run("undo", "restore", point, "--force").returncode == 0
    assert (program.work / "run").stat().st_mode & 0o777 == 0o755

    rows = json.loads(program.run("undo", "list", "--json").stdout)
    assert [row["label"].split()[0] for row in rows] == ["shepherd"] * 3 + ["execute_command"]
    assert rows[-1]["files"][0] == {"path": str(program.work / "made"), "change": "made"}
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Program(program.home, tmp_path / "elsewhere")
    assert "--all" in elsewhere.run("undo", "list").stderr
    assert len(elsewhere.run("undo", "list", "--all").stdout.splitlines()) == 4
    assert elsewhere.run("undo", "restore", "nothing").returncode == 1

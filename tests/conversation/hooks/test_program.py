"""Hooks in the settings of the real program."""

from tests.cli.program import Program

SCRIPT = """call: write_file {"path": "new", "content": "x"}
---
call: read_file {"path": "todo.txt"}
---
text: done
---
text: done again
---
text: too often
"""
HOOKS = """
[[hooks.session_start]]
command = "cat > ../start.json; exit 1"

[[hooks.before_tool]]
command = "echo no files today >&2; exit 2"
match = "write_*"

[[hooks.after_tool]]
command = "printf '{\\"context\\": \\"seen\\"}'"

[[hooks.turn_end]]
command = "[ ! -e ../again ] && touch ../again && printf '{\\"context\\": \\"once more\\"}'; exit 0"
"""
OF_PROJECT = '[[hooks.before_tool]]\ncommand = "touch ../pwned"\n'


def test_hooks_of_the_user_run_and_those_of_a_project_do_not(program: Program) -> None:
    program.config.mkdir(parents=True)
    (program.config / "config.toml").write_text(HOOKS)
    (program.work / ".shepherd.toml").write_text(OF_PROJECT)
    done = program.run_scripted(SCRIPT, "--approve", "all", "-e", "x")
    assert "no files today" in done.stderr
    assert "buy milk" in done.stderr
    assert "once more" in done.stderr
    assert "hooks.before_tool ignored" in done.stderr
    assert "the hook `cat > ../start.json; exit 1` failed: exit code 1" in done.stderr
    assert done.stdout.endswith("done again\n")
    assert '"event":"session_start"' in (program.home.parent / "start.json").read_text()
    assert not (program.work / "new").exists()
    assert not (program.home.parent / "pwned").exists()
    assert "[hook: seen]" in program.sessions[0].read_text()


def test_hooks_of_a_project_run_only_as_they_were_accepted(program: Program) -> None:
    file = program.work / ".shepherd" / "hooks.toml"
    file.parent.mkdir()
    file.write_text('[[before_tool]]\ncommand = "touch ../ran; exit 2"\n')
    ran = program.home.parent / "ran"
    read = 'call: read_file {"path": "todo.txt"}\n---\ntext: done\n'
    assert "shepherd hooks accept" in program.run_scripted(read, "-e", "x").stderr
    assert not ran.exists()
    assert "not accepted" in program.run("hooks", "list").stdout
    assert program.run("hooks", "accept", stdin="n\n").returncode != 0
    assert "touch ../ran" in program.run("hooks", "accept", "--yes").stdout
    assert "denied by the hook" in program.run_scripted(read, "-e", "x").stderr
    assert ran.exists()
    ran.unlink()
    file.write_text('[[before_tool]]\ncommand = "touch ../ran"\n')
    assert "shepherd hooks accept" in program.run_scripted(read, "-e", "x").stderr
    file.write_text('[[before_tool]]\ncommand = "touch ../ran; exit 2"\n')
    assert program.run("hooks", "withdraw").returncode == 0
    assert "shepherd hooks accept" in program.run_scripted(read, "-e", "x").stderr
    file.write_text("[[before_tool]]\ncommand = 3\n")
    assert "not a file of hooks" in program.run_scripted(read, "-e", "x").stderr
    assert not ran.exists()

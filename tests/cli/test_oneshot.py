"""One question: the answer on stdout, everything else on stderr."""

import os
import pty
import subprocess

import pytest

from shepherd.cli.batch.oneshot import MAX_PIPED_BYTES
from tests.backends.llamacpp.embedders import write_bert
from tests.cli.program import Program
from tests.forked import SHEPHERD, start_forked
from tests.patience import PATIENCE
from tests.pseudoterminal import start_on

LOOK = """text: Let me look.
call: read_file {"path": "todo.txt"}
---
think: hm
text: "Milk.\\n```sh\\nbuy\\n```\\n"
"""
WRITE = """call: write_file {"path": "new.txt", "content": "hello"}
---
text: Done.
"""


def test_only_the_last_answer_is_on_stdout(program: Program) -> None:
    done = program.run_scripted(LOOK, "-e", "What is to do?")
    assert (done.returncode, done.stdout) == (0, "Milk.\n```sh\nbuy\n```\n")
    for told in ("Let me look.", '→ read_file {"path": "todo.txt"}', "  buy milk", "hm"):
        assert told in done.stderr.splitlines()


def test_reasoning_and_what_is_said_before_a_call_are_lines_of_their_own(program: Program) -> None:
    script = "think: hm\ntext: Let me look.\ncall: get_date {}\n---\ntext: done"
    done = program.run_scripted(script, "-e", "x")
    assert done.stderr.splitlines()[:2] == ["hm", "Let me look."]


def test_an_answer_that_was_cut_off_is_said_to_be(program: Program) -> None:
    done = program.run_scripted("text: one two\nfinish: length", "-e", "x")
    assert (done.returncode, done.stdout) == (0, "one two\n")
    assert "The answer was cut" in done.stderr


def test_the_answer_ends_with_a_newline(program: Program) -> None:
    assert program.run_scripted("text: yes", "-e", "x").stdout == "yes\n"


def test_what_the_encoding_lacks_is_spelled_out(program: Program) -> None:
    ascii_only = Program(program.home, program.work, {"PYTHONIOENCODING": "ascii"})
    done = ascii_only.run(*ascii_only.scripted('text: "é \\u2192 \\ud800"'), "-e", "x")
    assert (done.returncode, done.stdout) == (0, "\\xe9 \\u2192 \\ud800\n")


def test_without_a_terminal_asking_means_no(program: Program) -> None:
    done = program.run_scripted(WRITE, "-e", "x")
    assert "denied: approval needed and no terminal to ask" in done.stderr
    assert not (program.work / "new.txt").exists()
    assert (done.returncode, done.stdout) == (3, "Done.\n")


def test_a_call_that_a_rule_denies_has_the_same_exit_code(program: Program) -> None:
    assert program.run_scripted(WRITE, "--approve", "none", "-e", "x").returncode == 3
    assert program.run_scripted(WRITE, "--approve", "edits", "-e", "x").returncode == 0


def test_in_plan_mode_the_plan_is_printed_and_nothing_changes(program: Program) -> None:
    script = """call: write_file {"path": "new.txt", "content": "x"}
---
call: present_plan {"plan": "1. write new.txt"}
---
text: That is the plan.
"""
    done = program.run_scripted(script, "--approve", "plan", "-e", "x")
    assert (done.returncode, done.stdout) == (0, "1. write new.txt\nThat is the plan.\n")
    assert "plan mode allows no changes" in done.stderr
    assert not (program.work / "new.txt").exists()


def test_a_question_can_be_a_command(program: Program) -> None:
    skill = program.work / ".agents" / "skills" / "review" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: review\ndescription: Reviews code.\n---\nLook.\n")
    done = program.run_scripted("text: x", "-e", "/skills")
    assert (done.returncode, done.stdout, done.stderr) == (0, "- review: Reviews code.\n", "")
    assert program.sessions == []


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("/memory list", "works only in the interactive terminal; use `shepherd memory` instead"),
        ("/exit", "works only in the interactive terminal; start `shepherd`"),
        ("/skilss", "There is no command /skilss; did you mean /skills?"),
        ("/dance now", "There is no command /dance; "),
    ],
)
def test_a_command_that_cannot_run_is_refused(program: Program, question: str, text: str) -> None:
    done = program.run_scripted("text: x", "-e", question)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr


@pytest.mark.parametrize("question", ["/etc/hosts has what?", "/tmp is full", "/ is what?"])
def test_a_path_is_no_command(program: Program, question: str) -> None:
    assert program.run_scripted("text: yes", "-e", question).stdout == "yes\n"


def test_a_commands_error_is_one_sentence(program: Program) -> None:
    done = program.run_scripted("text: x", "-e", "/undo many")
    assert (done.returncode, done.stdout) == (1, "")
    assert "/undo takes a number" in done.stderr


def test_an_error_of_the_backend_is_told_once(program: Program) -> None:
    done = program.run_scripted("error: upstream is gone", "-e", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "shepherd: upstream is gone\n"


def test_piped_input_is_the_context_of_the_question(program: Program) -> None:
    done = program.run_scripted("text: ok", "-e", "Sum up:", stdin="a\nb\n")
    assert done.returncode == 0
    shown = program.run("sessions", "show", program.sessions[0].stem).stdout
    assert "> Sum up:\n\na\nb\n" in shown


def test_piped_input_alone_is_the_question(program: Program) -> None:
    assert program.run_scripted("text: ok", stdin="How are you?").stdout == "ok\n"
    shown = program.run("sessions", "show", program.sessions[0].stem).stdout
    assert "> How are you?\n" in shown


def test_too_much_piped_input_is_cut_with_a_note(program: Program) -> None:
    script = "context: 10000000\ntext: ok"
    done = program.run_scripted(script, "-e", "x", stdin="y" * (MAX_PIPED_BYTES + 10))
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert f"only the first {MAX_PIPED_BYTES} bytes" in done.stderr


def test_a_conversation_goes_on(program: Program) -> None:
    program.run_scripted("text: one", "-e", "first")
    program.run_scripted("text: two", "-e", "second", "--continue")
    assert len(program.sessions) == 1
    shown = program.run("sessions", "show", program.sessions[0].stem).stdout
    assert shown.endswith("> first\n\none\n\n> second\n\ntwo\n")


def test_the_built_in_model_looks_into_files(program: Program) -> None:
    done = program.run("--temperature", "0", "-e", "What is in todo.txt?")
    assert done.returncode == 0
    assert "buy milk" in done.stdout
    assert "→ read_file" in done.stderr
    assert "→" not in done.stdout


def on_a_terminal(program: Program, *answers: str) -> tuple[str, int]:
    """Everything that the terminal shows while the answers are typed, and the exit code."""
    command = [SHEPHERD, *program.scripted(WRITE), "-e", "x"]
    terminal, side = pty.openpty()
    process = start_on(side, command, program.work, program.env)
    os.close(side)
    shown = b""
    waiting = list(answers)
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        shown += data
        if waiting and shown.count(b"/tell]") > len(answers) - len(waiting):
            os.write(terminal, waiting.pop(0).encode() + b"\n")
        if not data:
            break
    os.close(terminal)
    return shown.decode(), process.wait(PATIENCE)


def test_on_a_terminal_the_user_is_asked(program: Program) -> None:
    shown, code = on_a_terminal(program, "once")
    assert code == 0
    assert "Allow write_file?" in shown
    assert (program.work / "new.txt").read_text() == "hello"


def test_anything_but_yes_is_no(program: Program) -> None:
    shown, code = on_a_terminal(program, "why?", "no")
    assert code == 3
    assert "denied by the user" in shown
    assert not (program.work / "new.txt").exists()


def test_always_is_stored_as_shown(program: Program) -> None:
    shown, _ = on_a_terminal(program, "always")
    stored = (program.config / "permissions.toml").read_text()
    assert (program.work / "new.txt").exists()
    assert "allow write_file {cwd}/new.txt" in shown
    assert 'decision = "allow"' in stored


def test_a_control_sequence_does_not_reach_the_terminal(program: Program) -> None:
    script = program.scripted('text: "\\u001b]0;owned\\u0007"')
    main, side = pty.openpty()
    process: subprocess.Popen[bytes] = start_forked(
        [SHEPHERD, *script, "-e", "x"],
        program.env,
        stdin=subprocess.DEVNULL,
        stdout=side,
        cwd=program.work,
    )
    assert process.wait(PATIENCE) == 0
    assert b"\x1b" not in os.read(main, 4096)
    os.close(side)
    os.close(main)


def test_a_model_that_makes_no_text_is_refused(program: Program) -> None:
    path = write_bert(program.home / "bert.gguf")
    ended = program.run("--model", str(path), "-e", "hi")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "The model bert makes embeddings and can't write text." in ended.stderr
    assert "shepherd --server" in ended.stderr


def test_piped_text_never_runs_a_command_of_the_user(program: Program) -> None:
    for arguments in ((), ("--json",)):
        done = program.run_scripted("text: I see.", *arguments, stdin="!touch own\n")
        assert "I see." in done.stdout
    assert not (program.work / "own").exists()


def test_a_background_command_ends_with_the_program(program: Program) -> None:
    call = '{"command": "sleep 3600", "background": true}'
    script = f"call: execute_command {call}\n---\ntext: Started."
    done = program.run_scripted(script, "--approve", "all", "-e", "x")
    assert done.stdout == "Started.\n"
    assert "Background command 1 (sleep 3600) ends with the session." in done.stderr

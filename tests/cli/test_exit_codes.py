"""0 done, 1 error, 2 usage, 3 a denied call, 130 interrupted."""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.forked import SHEPHERD, start_forked
from tests.patience import PATIENCE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--no-such-option"], "No such option"),
        (["confg"], "No such command"),
        (["--port", "x", "--server"], "--port"),
        (["--approve", "maybe"], "--approve"),
        (["--set", "server.prot=1"], "did you mean server.port?"),
        (["--set", "server.port"], "SECTION.KEY=VALUE"),
        (["--continue", "--resume", "x"], "exclude each other"),
        (["--server", "--json"], "--server goes with none of"),
        (["--insecure"], "--insecure belongs to --server"),
        (["config", "get", "server.prot"], "did you mean server.port?"),
        (["--set", "server.port=-1", "-e", "x"], "command line: server.port must be"),
        (["--port", "70000", "--server"], "server.port must be a whole number from 0 to 65535"),
        (["--temperature", "99", "-e", "x"], "sampling.temperature must be a number from"),
        (["--context-size", "-5", "config", "show"], "llamacpp.context_size must be"),
        (["--context-size", "100", "-e", "x"], "context_size: must be 0 or at least 256"),
        (
            ["--set", "llamacpp.n_batch=16", "--set", "llamacpp.ubatch=32", "-e", "x"],
            "ubatch (32) must not exceed n_batch (16)",
        ),
        (["--set", "llamacpp.n_batch=-1", "config", "get", "llamacpp.n_batch"], "must be"),
        (["--server", "--host", "0.0.0.0", "--port", "0"], "Refusing to listen on 0.0.0.0"),
        (["--cliserver", "--host", "0.0.0.0", "--port", "0"], "Refusing to listen on 0.0.0.0"),
        (["--backend", "opnai", "--model", "x", "-e", "x"], "did you mean openai?"),
        (["provider", "add", "x", "--type", "opnai"], "did you mean openai?"),
        (["provider", "remvoe", "x"], "Did you mean 'remove'?"),
        (["config", "set", "server.prot", "1"], "did you mean server.port?"),
        (["config", "unset", "server.prot"], "did you mean server.port?"),
        (["config", "set", "sampling.seed", "-1"], "sampling.seed must be a whole number from 0"),
        (["--resume", "", "-e", "x"], "--resume is empty"),
        (["--resume", " ", "--json"], "--resume is empty"),
        (["-e", "  "], "--execute is empty"),
        (["--json", "-e", ""], "--execute is empty"),
        (["sessions", "delete", ""], "is empty"),
        (["sessions", "show", " "], "is empty"),
        ([], "There is no terminal to talk in"),
    ],
)
def test_wrong_usage(program: Program, arguments: list[str], said: str) -> None:
    done = program.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--port", "huge"], "'--port': must be a whole number, got \"huge\""),
        (["--port", "1e999"], "'--port': must be a whole number, got \"1e999\""),
        (["--temperature", "huge"], "'--temperature': must be a number, got \"huge\""),
        (["--approve", "huge"], "'--approve': 'huge' is not one of 'ask',"),
        (["provider", "add", "x", "--effort", "huge"], "'--effort': 'huge' is not one of '', "),
        (["provider", "add", "x", "--context-size", "huge"], "'--context-size': must be a whole"),
    ],
)
def test_a_wrong_value_is_named_in_plain_words(
    program: Program, arguments: list[str], problem: str
) -> None:
    wide = replace(program, extra={**program.extra, "COLUMNS": "400"})
    done = wide.run(*arguments)
    assert done.returncode == 2
    assert f"Invalid value for {problem}" in done.stderr
    assert "Value error" not in done.stderr
    assert "Input should be" not in done.stderr


def test_wrong_settings_of_a_file_are_no_wrong_usage(program: Program) -> None:
    program.config.mkdir(parents=True)
    file = program.config / "config.toml"
    file.write_text("[llamacpp]\nn_batch = 16\nubatch = 32\n")
    assert program.run("-e", "x").returncode == 1
    assert program.run("--set", "llamacpp.threads=1", "-e", "x").returncode == 1
    file.write_text('[server]\nhost = "0.0.0.0"\n')
    assert program.run("--server", "--port", "0").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "no-such-model", "-e", "x"], "shepherd: No model 'no-such-model'"),
        (["--resume", "x", "-e", "x"], "shepherd: No session x"),
    ],
)
def test_errors_are_one_line(program: Program, arguments: list[str], said: str) -> None:
    done = program.run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_debug_shows_where_an_error_came_from(program: Program) -> None:
    done = program.run("--debug", "--resume", "x", "-e", "x")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_end_a_turn_and_keep_the_session(
    program: Program, number: signal.Signals, code: int
) -> None:
    script = "text: Let me wait.\ncall: execute_command {}\ndelay: 60"
    with program.start_scripted(script, "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("hello\n")
        process.stdin.flush()
        assert "Let me wait" in process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert '"reason": "cancelled"' in out.splitlines()[-1]
    assert err == ""
    assert program.run("sessions", "show", program.sessions[0].stem).stdout.endswith(
        "> hello\n\nLet me wait.\n"
    )
    assert process.returncode == code


def test_nobody_reads_the_answer(program: Program) -> None:
    with program.start_scripted("text: " + "word " * 50_000, "-e", "x") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "closed"),
    [
        *((["--version"], closed) for closed in (">&-", "2>&-", "<&-", ">&- 2>&- <&-")),
        (["doctor"], ">&- 2>&- <&-"),
        (["config", "show"], "<&-"),
        (["config", "show"], ">&-"),
    ],
)
def test_a_closed_stream_is_like_the_null_device(
    program: Program, arguments: list[str], closed: str
) -> None:
    line = f'exec "$0" "$@" {closed}'
    result = subprocess.run(
        ["/bin/sh", "-c", line, SHEPHERD, *arguments],
        capture_output=True,
        cwd=program.work,
        env=program.env,
        timeout=PATIENCE,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert bool(result.stdout) == (not closed.startswith(">"))


def test_nobody_reads_a_list(program: Program) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [SHEPHERD, "config", "show"]
    process: subprocess.Popen[bytes] = start_forked(
        command, program.env, stdout=writer, stderr=subprocess.PIPE, cwd=program.work
    )
    os.close(writer)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (1, b"")


def test_what_a_projects_file_says_can_not_steer_the_terminal(program: Program) -> None:
    (program.work / ".shepherd.toml").write_text('[model]\n"k\\u001b]0;owned\\u0007" = 1\n')
    done = program.run("config", "show")
    assert done.returncode == 1
    assert r"unknown setting model.k\x1b]0;owned\x07" in done.stderr


@pytest.mark.parametrize("arguments", [["-e", "x"], ["config", "show"]])
def test_a_full_disk_is_told_in_one_line(program: Program, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [SHEPHERD, *program.scripted("text: hello"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=program.work,
            env=program.env,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "shepherd: No space left on device\n"

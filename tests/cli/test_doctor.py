"""`shepherd doctor`."""

import json
import os
import pty
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shepherd.backends.llamacpp.native import bindings as native
from shepherd.cli.commands.doctor import State, check_llamacpp, check_sandbox
from shepherd.config.section import SandboxMode
from shepherd.tools.sandbox.sandbox import Attempt, Finding
from tests.cli.program import Program
from tests.forked import SHEPHERD
from tests.patience import PATIENCE
from tests.pseudoterminal import start_on

NAMES = ["shepherd", "python", "settings", "directories", "sandbox", "layer", "llama.cpp", "model",
         "providers", "terminal", "programs", "keyring"]  # fmt: skip


def found(program: Program, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = program.run(*options, "doctor", "--json")
    data = json.loads(done.stdout)
    assert data["ok"] is (done.returncode == 0)
    return done.returncode, {check["name"]: check for check in data["checks"]}


def test_an_empty_home_is_fine_and_stays_empty(program: Program) -> None:
    code, found_checks = found(program)
    assert (code, list(found_checks)) == (0, NAMES)
    assert "built-in (pup)" in found_checks["model"]["text"]
    assert "loads with a context of 8,192 tokens" in found_checks["model"]["text"]
    assert list(program.home.iterdir()) == []


def test_on_a_terminal_it_is_plain_lines(program: Program) -> None:
    main, other = pty.openpty()
    env = {**program.env, "TERM": "xterm", "LANG": "C.UTF-8"}
    process = start_on(other, [SHEPHERD, "doctor"], program.work, env)
    os.close(other)
    output = b""
    try:
        while chunk := os.read(main, 4096):
            output += chunk
    except OSError:  # the program has ended
        pass
    finally:
        os.close(main)
    assert process.wait(PATIENCE) == 0
    lines = output.decode().splitlines()
    assert [name for name in NAMES if any(line.startswith(name) for line in lines)] == NAMES
    assert any(re.match(r"terminal +ok +TERM=xterm, utf-8", line) for line in lines)
    assert lines[-1] == "All that Shepherd needs works."


def test_broken_settings_are_named_and_the_rest_is_checked(program: Program) -> None:
    program.config.mkdir(parents=True)
    (program.config / "config.toml").write_text("[tools]\nsandbox = 1\n")
    code, found_checks = found(program)
    assert (code, list(found_checks)) == (1, NAMES)
    assert "config.toml:2: " in found_checks["settings"]["text"]
    done = program.run("doctor")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "Broken: settings.")


def test_directories_that_can_not_be_made_are_broken(program: Program) -> None:
    (program.home / "file").touch()
    places = Program(program.home, program.work, {"XDG_STATE_HOME": str(program.home / "file/x")})
    code, found_checks = found(places)
    assert code == 1
    assert "file/x" in found_checks["directories"]["text"]


def test_a_model_that_is_missing_is_broken_unless_a_provider_answers(program: Program) -> None:
    assert found(program, "--model", "nowhere")[1]["model"]["state"] == "broken"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        program.run(
            "provider", "add", "near", "--type", "ollama", "--base-url", url, "--model", "m"
        )
        code, found_checks = found(program, "--provider", "near")
        with pytest.raises(BlockingIOError):
            server.accept()
    assert code == 0
    assert "near: ollama, m" in found_checks["provider"]["text"]


@pytest.mark.parametrize(
    ("mode", "state"),
    [(SandboxMode.AUTO, State.NOTE), (SandboxMode.REQUIRED, State.BROKEN)],
)
def test_without_a_box_it_says_what_to_install(mode: SandboxMode, state: State) -> None:
    attempt = Attempt("bubblewrap", ok=False, reason="not there", advice="install bubblewrap")
    sandbox = check_sandbox(mode, Finding(None, (attempt,)))
    assert sandbox.state is state
    assert sandbox.advice == ("bubblewrap: not there; install bubblewrap",)


@pytest.mark.parametrize(
    ("files", "build"),
    [
        (["nvidiactl", "nvidia0", "dri/renderD128"], "cuda"),
        (["kfd", "dri/renderD128"], "rocm"),
        (["dri/renderD128"], "vulkan"),
        (["nvidiactl", "dri/card0", "null"], None),
    ],
)
def test_a_gpu_that_the_build_can_not_use_is_named(
    files: list[str], build: str | None, tmp_path: Path
) -> None:
    (tmp_path / "dri").mkdir()
    for name in files:
        (tmp_path / name).touch()
    check = check_llamacpp(State.BROKEN, tmp_path)
    assert "built for the CPU only" in check.text
    assert check.state is (State.NOTE if build else State.OK)
    assert [f"`make chat GPU={build}`" in advice for advice in check.advice] == [True] * bool(build)


def test_a_build_for_a_gpu_that_finds_none_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that was started without its GPUs."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libggml-cuda.so").touch()
    library = SimpleNamespace(__file__=str(tmp_path / "llama_cpp.py"))
    native.bindings()
    monkeypatch.setattr(native, "bindings", lambda: library)
    check = check_llamacpp(State.BROKEN, tmp_path)
    assert (check.state, "built with cuda, but it finds no GPU" in check.text) == (State.NOTE, True)

"""shepherd provider, --provider and --backend, with the real program."""

import asyncio
import stat
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from shepherd.cli.options import app
from shepherd.config.provider import Provider
from tests.backends.openai_server import openai_server
from tests.cli.program import Program

KEY = "sk-test-1234567890abcd"


@pytest.fixture
def scripted(program: Program) -> Program:
    """With two providers that play scripts."""
    lines: list[str] = []
    for name in ("first", "second"):
        script = program.home / f"{name}.txt"
        script.write_text(f"text: I am the {name}.\n")
        lines += [f"[{name}]", 'type = "llamacpp"', f'model = "script:{script}"']
    program.config.mkdir(parents=True)
    (program.config / "providers.toml").write_text("\n".join(lines))
    return program


async def run(program: Program, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """`Program.run` while a server of this process answers."""
    done = await asyncio.to_thread(program.run, *arguments, stdin=stdin)
    return done.returncode, done.stdout, done.stderr


def test_add_show_set_list_remove(program: Program) -> None:
    url = "https://api.openai.com/v1"
    added = ("provider", "add", "work", "--type", "openai", "--model", "gpt-5-mini")
    done = program.run(*added, "--base-url", url, "--api-key", "-", stdin=f"{KEY}\n")
    assert done.returncode == 0, done.stderr
    providers = program.config / "providers.toml"
    assert KEY not in providers.read_text() + done.stdout + done.stderr
    credentials = program.config / "credentials.toml"
    assert {stat.S_IMODE(f.stat().st_mode) for f in (providers, credentials)} == {0o600}
    assert program.run(*added).returncode == 2
    shown = program.run("provider", "show", "work").stdout
    assert "key           sk-…abcd" in shown
    assert "400,000 tokens (the model database)" in shown
    assert KEY not in shown
    assert program.run("provider", "set", "work", "context-size", "9000").returncode == 0
    assert program.run("provider", "set", "work", "api-key", "env:MINE").returncode == 0
    assert KEY not in credentials.read_text()
    assert program.run("provider", "use", "work/gpt-5").returncode == 0
    listed = program.run("provider", "list").stdout
    assert listed.startswith("* work  openai")
    assert listed.endswith("key missing\n")
    done = program.run("-e", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert "provider set work api-key -" in done.stderr
    assert "local model answers" in program.run("provider", "remove", "work").stderr
    assert program.run("config", "get", "model.provider").stdout == "\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add", "x", "--type", "openia"), "x.type must be one of"),
        (
            ("add", "x", "--type", "openai", "--requests-per-minute", "-1"),
            "x.requests_per_minute must be a whole number from 0",
        ),
        (
            ("add", "x", "--type", "tensorrt", "--gpu-memory", "2"),
            "x.gpu_memory must be a number from 0.01 to 1.0",
        ),
        (("add", "local", "--type", "openai"), "local is a word of the commands"),
        (("add", "x", "--type", "openai", "--base-url", "host"), "must begin with http"),
        (("add", "x", "--type", "openai", "--api-key-env", "A", "--keyring"), "--api-key-env"),
        (("set", "first", "modle", "x"), "did you mean model?"),
        (("set", "first", "context-size", "many"), "must be a whole number"),
    ],
)
def test_wrong_usage(scripted: Program, arguments: tuple[str, ...], told: str) -> None:
    before = (scripted.config / "providers.toml").read_text()
    done = scripted.run("provider", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert (scripted.config / "providers.toml").read_text() == before


def test_a_provider_is_chosen(scripted: Program) -> None:
    assert scripted.run("--provider", "second", "-e", "who").stdout == "I am the second.\n"
    [session] = scripted.sessions
    assert '"model":"second"' in session.read_text().replace(": ", ":")
    assert scripted.run("provider", "use", "first").returncode == 0
    assert scripted.run("-e", "who").stdout == "I am the first.\n"
    other = f"script:{scripted.home / 'second.txt'}"
    assert scripted.run("--model", other, "-e", "who").stdout == "I am the second.\n"
    done = scripted.run("--provider", "thrid", "-e", "who")
    assert done.returncode == 1
    assert "there are first, second" in done.stderr


async def test_an_ephemeral_provider_is_not_stored(program: Program) -> None:
    async with openai_server("Hello from there.") as server:
        given = ("--backend", "openai", "--api-base", server.url, "--model", "small")
        code, out, err = await run(program, *given, "--api-key", KEY, "-e", "hi")
        assert (code, out) == (0, "Hello from there.\n"), err
        assert {r.headers["authorization"] for r in server.requests} == {f"Bearer {KEY}"}
    assert not (program.config / "providers.toml").exists()
    assert all(KEY not in path.read_text() for path in program.sessions)
    done = program.run("--api-base", "http://x", "-e", "hi")
    assert (done.returncode, "--backend" in done.stderr) == (2, True)


async def test_test_tells_what_the_server_says(program: Program) -> None:
    async with openai_server("x", context=5000) as server:
        program = replace(program, extra={"MINE": KEY})
        await run(program, "provider", "add", "work", "--type", "openai", "--base-url",
                  server.url, "--api-key-env", "MINE")  # fmt: skip
        code, out, err = await run(program, "provider", "test", "work")
        assert code == 0, err
        assert "key sk-…abcd (MINE)" in out
        assert "models (1): small" in out
        assert "context: 5,000 tokens, from " in out
    code, out, err = await run(program, "provider", "test", "work")
    assert code == 1
    assert "work can't be reached" in err
    assert KEY not in out + err


def test_the_model_can_not_read_keys(scripted: Program, tmp_path: Path) -> None:
    credentials = scripted.config / "credentials.toml"
    credentials.write_text(f'work = "{KEY}"\n')
    call = f'call: read_file {{"path": "{credentials}"}}\n---\ntext: done\n'
    done = scripted.run_scripted(call, "--approve", "all", "-e", "read it")
    assert "denied by rule" in done.stderr
    assert KEY not in done.stdout + done.stderr + scripted.sessions[0].read_text()


def test_every_setting_of_a_provider_has_an_option() -> None:
    typed = get_command(app)
    assert isinstance(typed, TyperGroup)
    group = typed.get_command(typer.Context(typed), "provider")
    assert isinstance(group, TyperGroup)
    options = {param.name for param in group.commands["add"].params}
    settings = set(Provider.model_fields) - {"headers", "base_urls"}
    assert settings <= options
    assert {"header", "keyring", "api_key_env"} <= options


def test_options_and_changes_are_kept(program: Program) -> None:
    given = ("--requests-per-minute", "30", "--tokens-per-minute", "100000", "--no-ask")
    gpus = ("--tensor-parallel", "2", "--gpu-memory", "0.5", "--trust-remote-code")
    added = program.run("provider", "add", "gpu", "--type", "tensorrt", "-m", "m", *given, *gpus)
    assert added.returncode == 0, added.stderr
    for key, value in (("gpu-memory", "0.75"), ("trust-remote-code", "no"), ("ask", "yes")):
        assert program.run("provider", "set", "gpu", key, value).returncode == 0
    stored = tomllib.loads((program.config / "providers.toml").read_text())["gpu"]
    assert stored == {
        "type": "tensorrt",
        "model": "m",
        "requests_per_minute": 30,
        "tokens_per_minute": 100_000,
        "tensor_parallel": 2,
        "gpu_memory": 0.75,
    }

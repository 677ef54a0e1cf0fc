"""shepherd model … --provider: the models of an Ollama server, over real HTTP."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from shepherd.catalog.discovery import adding_command
from tests.backends.api.ollama.managed import STEPS, Ollama
from tests.backends.api.upstream import Reply, Upstream
from tests.cli.program import Program
from tests.forked import SHEPHERD, start_forked
from tests.patience import PATIENCE

HERE = ("--provider", "ollama")


@asynccontextmanager
async def ollama(
    program: Program, server: Ollama | None = None
) -> AsyncGenerator[tuple[Program, Upstream], None]:
    """The program with OLLAMA_HOST, and the server that it means."""
    async with Upstream(server or Ollama()) as up:
        yield replace(program, extra={"OLLAMA_HOST": up.url.removeprefix("http://")}), up


async def run(program: Program, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(program.run, "model", *arguments)


async def test_the_models_are_listed(program: Program) -> None:
    async with ollama(program) as (here, _):
        done = await run(here, "list", *HERE)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["qwen3:8b", "4.8", "GiB", "qwen3", "8.2B", "Q4_K_M", "loaded"],
        ["big:cloud", "in", "the", "cloud"],
        ["llama3:latest", "4", "MiB"],
    ]


async def test_names_can_not_steer_the_terminal(program: Program) -> None:
    server = Ollama(tags={"models": [{"name": "\x1b]0;x\x07", "size": 1}]}, loaded=[])
    async with ollama(program, server) as (here, _):
        done = await run(here, "list", *HERE)
    assert done.stdout.startswith(r"\x1b]0;x\x07")


async def test_a_stored_provider_is_asked_with_its_key(program: Program) -> None:
    async with Upstream(Ollama(tags={"models": []})) as up:
        program.config.mkdir(parents=True)
        (program.config / "providers.toml").write_text(
            f'[home]\ntype = "ollama"\nbase_url = "{up.url}/v1"\napi_key = "env:MINE"\n'
        )
        with_key = replace(program, extra={"MINE": "k" * 20, "OLLAMA_HOST": "127.0.0.1:1"})
        done = await run(with_key, "list", "--provider", "home")
        assert {r.headers["authorization"] for r in up.requests} == {f"Bearer {'k' * 20}"}
    assert (done.returncode, done.stdout) == (0, "")
    assert "`shepherd model pull qwen3:4b --provider home` gets one" in done.stderr


async def test_a_model_is_described(program: Program) -> None:
    async with ollama(program) as (here, up):
        done = await run(here, "info", "qwen3:8b", *HERE)
        missing = await run(here, "info", "x", *HERE)
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert rows == {
        "model": "qwen3:8b",
        "provider": f"ollama ({up.url})",
        "architecture": "qwen3",
        "parameters": "8.2B",
        "quantisation": "Q4_K_M",
        "context": "8,192 tokens (it could take 40,960)",
        "template": "chatml",
        "can": "completion, tools, thinking",
        "settings": 'num_ctx 8192; stop "<|im_end|>"',
    }
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "`shepherd model pull x --provider ollama` gets it" in missing.stderr


async def test_a_model_is_pulled_though_the_connection_breaks(program: Program) -> None:
    server = Ollama(pulls=[Reply.ndjson(STEPS[:3])])
    async with ollama(program, server) as (here, up):
        done = await run(here, "pull", "qwen3:8b", *HERE)
    assert (done.returncode, done.stdout) == (0, "qwen3:8b\n"), done.stderr
    assert [r.json["model"] for r in up.requests] == ["qwen3:8b"] * 2
    assert done.stderr.splitlines() == [
        "pulling manifest",
        "pulling aa (191 MiB)",
        "the connection broke off; going on",
        "pulling manifest",
        "pulling aa (191 MiB)",
        "verifying sha256 digest",
        f"`{adding_command(up.url, 'qwen3:8b')}` connects it.",
    ]


async def test_a_pull_has_a_bar_on_a_terminal(program: Program) -> None:
    async with ollama(program) as (here, _):
        terminal, end = pty.openpty()
        termios.tcsetwinsize(end, (24, 80))
        command = [SHEPHERD, "model", "pull", "qwen3:8b", *HERE]
        process: subprocess.Popen[bytes] = start_forked(
            command, here.env, stdout=subprocess.DEVNULL, stderr=end, cwd=here.work
        )
        os.close(end)
        shown = await asyncio.wait_for(asyncio.to_thread(all_of, terminal), 3 * PATIENCE)
        assert process.wait(PATIENCE) == 0
    assert "pulling aa: 100%" in shown
    assert "200M/200M" in shown
    assert "pulling bb" not in shown


def all_of(terminal: int) -> str:
    """What is written on a terminal until its last writer is gone."""
    shown = b""
    try:
        while data := os.read(terminal, 65_536):
            shown += data
    except OSError:  # Linux's word for the end
        pass
    os.close(terminal)
    return shown.decode()


async def test_control_c_leaves_the_pull_to_be_gone_on_with(program: Program) -> None:
    never = asyncio.Event()
    lines = [json.dumps(step) + "\n" for step in STEPS[:3]]
    async with ollama(program, Ollama(pulls=[Reply([*lines, never])])) as (here, up):
        with here.start("model", "pull", "qwen3:8b", *HERE) as process:
            assert process.stderr is not None
            assert await asyncio.to_thread(process.stderr.readline) == "pulling manifest\n"
            process.send_signal(signal.SIGINT)
            out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
        await asyncio.wait_for(up.requests[0].hung_up.wait(), PATIENCE)
        assert (process.returncode, out) == (130, "")
        assert err.splitlines()[-1] == "Stopped; the same command goes on from here."
        assert "Traceback" not in err


async def test_a_pull_that_is_refused_is_told_in_a_sentence(program: Program) -> None:
    failing = [*STEPS[:1], {"error": "pull model manifest:\n\nfile does not exist"}]
    async with ollama(program, Ollama(pulls=[Reply.ndjson(failing)])) as (here, _):
        done = await run(here, "pull", "qwen9", *HERE)
    assert (done.returncode, done.stdout) == (1, "")
    (told,) = done.stderr.splitlines()[1:]
    assert told.startswith("shepherd: Ollama can't pull qwen9: pull model manifest: file does not")
    assert told.endswith("; look for its name at https://ollama.com/search")


async def test_a_model_leaves_the_memory(program: Program) -> None:
    server = Ollama()
    async with ollama(program, server) as (here, _):
        done = await run(here, "unload", "qwen3:8b", *HERE)
    assert (done.returncode, done.stdout, server.loaded) == (0, "", [])
    assert done.stderr == "qwen3:8b is no longer in the memory of ollama.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("list", "--provider", "work"), 2, "work is of type openai: only providers of type"),
        (("unload", "x", "--provider", "file"), 2, "file is of type llamacpp"),
        (("unload", "x"), 2, "--provider"),
        (("list", "--provider", "wrok"), 1, "Did you mean work?"),
        (("list", "--provider", "ollama"), 1, "No Ollama server answers at http://127.0.0.1:1;"),
    ],
)
def test_what_can_not_be_done(
    program: Program, arguments: tuple[str, ...], code: int, told: str
) -> None:
    program.config.mkdir(parents=True)
    (program.config / "providers.toml").write_text(
        '[work]\ntype = "openai"\n[file]\ntype = "llamacpp"\n'
    )
    done = replace(program, extra={"OLLAMA_HOST": "127.0.0.1:1"}).run("model", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr

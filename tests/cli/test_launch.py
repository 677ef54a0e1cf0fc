"""`shepherd launch` with a stand-in for each agent, which records how it was started."""

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from string import Template
from typing import Any

import httpx
import pytest

from shepherd.cli.commands.launch.launch import coding_agents
from tests.cli.program import Program
from tests.cli.test_use_tools import serving
from tests.e2e.terminal import CTRL_C, Terminal
from tests.forked import SHEPHERD
from tests.patience import PATIENCE

SCRIPT = "text: Hello."
CONTEXT = 12_000
STAND_IN = """#!{python} -IS
import json, os, sys
files = {{}}
for folder, _, names in os.walk(os.environ["TMPDIR"]):
    for name in names:
        path = os.path.join(folder, name)
        inside = os.path.relpath(path, os.environ["TMPDIR"]).partition("/")[2]
        files[inside] = open(path).read()
modes = [oct(entry.stat().st_mode)[-3:] for entry in os.scandir(os.environ["TMPDIR"])]
record = dict(modes=modes, argv=sys.argv[1:], env=dict(os.environ), files=files, pid=os.getpid())
json.dump(record, open({record!r}, "w"))
{work}
"""


class Launched:
    """A stand-in for an agent, and what it recorded."""

    def __init__(self, program: Program, name: str, work: str = "sys.exit(7)") -> None:
        self.place = program.home.parent
        self.temporary = self.place / "temporary"
        self.temporary.mkdir()
        programs = self.place / "programs"
        programs.mkdir()
        text = STAND_IN.format(python=sys.executable, record=str(self.place / "record"), work=work)
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        self.program = Program(
            program.home, program.work, {"PATH": path, "TMPDIR": str(self.temporary)}
        )

    @property
    def record(self) -> Mapping[str, Any]:
        return json.loads((self.place / "record").read_text())

    def await_end(self, url: str = "") -> None:
        """Wait until nothing of the launch is left: no folder, and no server at the address."""
        until(lambda: not any(self.temporary.iterdir()))
        if url:
            until(lambda: not listens(url))


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def listens(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as plug:
        return not plug.connect_ex((host, int(port)))


def url_in(text: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", text)
    assert found, text
    return found[0]


def test_a_server_starts_for_the_agent_and_ends_with_it(program: Program) -> None:
    work = """
import urllib.request
for name in ("claude-haiku-4-5", "mine"):
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages/count_tokens"
    body = dict(model=name, messages=[dict(role="user", content="hi")])
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
    print(urllib.request.urlopen(asked).status, flush=True)
sys.exit(7)
"""
    launched = Launched(program, "claude", work)
    program.config.mkdir(parents=True)
    (program.config / "config.toml").write_text('[server.aliases]\nmine = "default"\n')
    extra = {**launched.program.extra, "ANTHROPIC_API_KEY": "sk-mine", "EMPTY": "", "MINE": "1"}
    own = Program(program.home, program.work, extra)
    done = own.run(*own.scripted(SCRIPT), "launch", "claude", "--", "-p", "hi there")
    assert (done.returncode, done.stdout) == (7, "200\n200\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "a server of its own" in done.stderr
    url = url_in(done.stderr)
    env = launched.record["env"]
    assert launched.record["argv"][-2:] == ["-p", "hi there"]
    assert env["ANTHROPIC_BASE_URL"] == url
    assert env["ANTHROPIC_MODEL"] == env["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "script"
    assert env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "32768"
    assert "ANTHROPIC_API_KEY" not in env  # it would go to the vendor
    assert (env["EMPTY"], env["MINE"]) == ("", "1")
    launched.await_end(url)
    assert "Serving" in (program.home / ".local/state/shepherd/launch.log").read_text()


def test_ctrl_c_is_for_the_agent_and_leaves_it_its_server(program: Program) -> None:
    work = """
import signal, threading, urllib.request
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
def heard():
    while signal.sigwait({signal.SIGINT}):  # a handler may run only after the next line is read
        os.write(1, b"interrupted\\n")
threading.Thread(target=heard, daemon=True).start()
before = os.tcgetpgrp(0) == os.getpgrp()
print("ready", before, flush=True)
for line in sys.stdin:
    if line == "end\\n":
        os._exit(7)
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/models"
    print("answer", urllib.request.urlopen(url).status, flush=True)
"""
    launched = Launched(program, "claude", work)
    argv = [SHEPHERD, *program.scripted(SCRIPT), "launch", "claude"]
    with Terminal(argv, program.work, launched.program.env, columns=300) as terminal:
        terminal.wait_for("ready True")
        for pressed in (1, 2):
            terminal.send(CTRL_C)
            terminal.wait_count("interrupted", pressed)
        terminal.send("ask\n")
        terminal.wait_for("answer 200")
        terminal.send("end\n")
        assert terminal.wait_exit() == 7
        assert terminal.modes() == terminal.modes_before
        url = url_in(terminal.text())
    launched.await_end(url)


def test_nothing_is_left_of_an_agent_that_was_killed(program: Program) -> None:
    launched = Launched(program, "gemini", "os.read(0, 1)")
    scripted = launched.program.scripted(SCRIPT)
    with launched.program.start(*scripted, "launch", "gemini") as process:
        until((launched.place / "record").exists)
        until(lambda: (launched.place / "record").read_text().endswith("}"))
        url = launched.record["env"]["GOOGLE_GEMINI_BASE_URL"]
        assert listens(url)
        os.kill(launched.record["pid"], signal.SIGKILL)  # the launcher itself, become the agent
        assert process.wait(PATIENCE) == -signal.SIGKILL
        process.communicate()
    launched.await_end(url)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that somebody has started."""
    home = tmp_path_factory.mktemp("running")
    server = Program(home, home)
    with serving(server, *server.scripted(f"context: {CONTEXT}\n{SCRIPT}")) as url:
        yield url.removesuffix("/v1")


@pytest.mark.parametrize("name", coding_agents())
def test_all_texts_of_an_agent_are_filled_in(program: Program, running: str, name: str) -> None:
    launched = Launched(program, name)
    done = launched.program.run("--port", running.rpartition(":")[2], "launch", name)
    assert done.returncode == 7, done.stderr
    assert f"{running}, the running server" in done.stderr
    agent, record = coding_agents()[name], launched.record
    assert all(record["env"].get(variable, "") for variable, text in agent.env.items() if text)
    written = record["files"]
    assert written.keys() == agent.files.keys()
    assert record["modes"] == ["700"]
    texts = [*record["argv"], *(record["env"].get(n, "") for n in agent.env), *written.values()]
    assert any(running in text for text in texts)
    assert any("script" in text for text in texts)
    assert not any(re.search(r"\$(url|key|model|context|output|dir)", text) for text in texts)
    for file, text in written.items():
        if file.endswith(".json"):
            json.loads(text)
    launched.await_end()
    assert listens(running)
    assert ("its first prompt has about" in done.stderr) == (agent.first_prompt > CONTEXT)


def test_a_key_is_made_if_the_server_needs_one_and_ends_with_the_agent(program: Program) -> None:
    launched = Launched(program, "codex", "os.read(0, 1)")
    options = ("--auth-mode", "json", *launched.program.scripted(SCRIPT))
    with launched.program.start(*options, "launch", "codex") as process:
        until((launched.place / "record").exists)
        until(lambda: (launched.place / "record").read_text().endswith("}"))
        secret = launched.record["env"]["SHEPHERD_API_KEY"]
        arguments = " ".join(launched.record["argv"])
        assert secret.startswith("sk-shep-")
        assert secret not in arguments  # other users of the machine see these
        url = url_in(arguments)
        headers = {"Authorization": f"Bearer {secret}"}
        assert httpx.get(f"{url}/v1/models", headers=headers).is_success
        assert httpx.get(f"{url}/v1/models").status_code == 401
        process.communicate("x", timeout=PATIENCE)
    launched.await_end(url)
    keys = json.loads((program.config / "keys.json").read_text())["keys"]
    assert keys == []


def test_a_server_that_fails_says_why(program: Program) -> None:
    launched = Launched(program, "claude")
    done = launched.program.run("--model", "/missing.gguf", "launch", "claude")
    assert done.returncode == 1
    assert "missing.gguf" in done.stderr
    launched.await_end()


def test_what_is_not_there_is_told(program: Program) -> None:
    empty = Program(program.home, program.work, {"PATH": str(program.home)})
    listed = empty.run("launch")
    assert "npm install -g @openai/codex" in listed.stdout
    missing = empty.run("launch", "codex")
    assert missing.returncode == 2
    assert "npm install -g @openai/codex" in missing.stderr
    assert empty.run("launch", "nobody").returncode == 2


def test_no_text_names_what_is_unknown() -> None:
    values: dict[str, object] = dict.fromkeys(
        ("url", "key", "model", "context", "output", "dir"), "1"
    )
    for agent in coding_agents().values():
        for text in (*agent.arguments, *agent.env.values(), *agent.files.values()):
            Template(text).substitute(values)

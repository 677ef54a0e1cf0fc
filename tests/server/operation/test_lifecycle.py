"""Draining, reloading and ending a server, by `shepherd ctl` and by signals."""

import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs
from msgspec.structs import replace

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import ConfigError
from shepherd.server.access.key import KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.server.app import create_app
from shepherd.server.models import ModelState, OneModel, ServedModel
from shepherd.server.operation.lifecycle import Lifecycle, Notifier, Reloaded
from shepherd.server.settings import ServerSettings
from tests.cli.program import Program
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer
from tests.server.held import HeldBackend
from tests.server.operation.test_metrics import WIRES

BODY = {"messages": HI}


@pytest.fixture
def server() -> Iterator[RunningServer[HeldBackend]]:
    with RunningServer(HeldBackend(hold_generation=True)) as running:
        yield running


def state(server: RunningServer[Any]) -> Lifecycle:
    return server.app.context.lifecycle


async def _call(work: Any) -> None:
    work()


def ready(server: RunningServer[Any]) -> tuple[int, str]:
    answer = httpx.get(f"{server.url}/ready", timeout=PATIENCE)
    return answer.status_code, answer.json()["status"]


def test_a_draining_server_refuses_work_and_finishes_what_runs(
    server: RunningServer[HeldBackend],
) -> None:
    assert ready(server) == (200, "ready")
    with server.connect_and_post(BODY) as sock:
        server.until(lambda: server.backend.working == 1)
        server.do(_call(state(server).drain))
        assert ready(server) == (503, "draining")
        for path, body in WIRES.values():
            refused = httpx.post(server.url + path, json=body, timeout=PATIENCE)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) > 0
            assert "takes no new requests" in refused.text
        for path in ("/health", "/v1/models", "/stats", "/metrics"):
            assert httpx.get(server.url + path, timeout=PATIENCE).status_code == 200
        server.do(_call(server.backend.go.set))
        assert sock.recv(12) == b"HTTP/1.1 200"


def test_a_server_whose_model_can_not_answer_is_not_ready() -> None:
    with RunningServer(HeldBackend()) as server:
        server.backend.failed = True
        assert ready(server) == (503, "error")


class Loading(OneModel):
    """A model that is loading."""

    def every(self) -> Sequence[ServedModel]:
        return [replace(model, state=ModelState.LOADING) for model in super().every()]


async def test_a_server_whose_default_model_loads_is_not_ready() -> None:
    backend = ScriptedBackend(parse_script("text: hi"))
    app = create_app(Loading(lambda: backend))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "loading")
        assert (await client.get("/health")).status_code == 200


def test_admin_paths_need_the_scope_and_never_open_without_keys(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    user = keys.add("user")
    backend = ScriptedBackend(parse_script("text: hi"))
    paths = [("GET", "status"), ("POST", "drain"), ("POST", "reload"), ("POST", "shutdown")]
    with RunningServer(backend, ServerSettings(port=0), keys) as locked:
        for method, path in paths:
            for key, status in (("", 401), (user, 403)):
                headers = {"x-api-key": key}
                answer = httpx.request(method, f"{locked.url}/admin/{path}", headers=headers)
                assert answer.status_code == status
        assert ready(locked)[0] == 200
    with RunningServer(ScriptedBackend(parse_script("text: hi"))) as unlocked:
        for method, path in paths:
            answer = httpx.request(method, f"{unlocked.url}/admin/{path}", json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                403,
                "insufficient_scope",
            )
        assert ready(unlocked) == (200, "ready")


class Service:
    """A program that serves, with a Unix socket for `shepherd ctl`."""

    def __init__(self, program: Program, process: "subprocess.Popen[str]", path: Path) -> None:
        self.program = program
        self.process = process
        self.path = path

    def wait_for(self, text: str) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return line
        raise AssertionError(f"ended without saying {text!r}")

    def ctl(self, *arguments: str) -> Any:
        ended = self.program.run("ctl", *arguments, "--json", "--socket", str(self.path))
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def get(self, path: str) -> httpx.Response:
        with self.client() as client:
            return client.get(path)

    def client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self.path))
        return httpx.Client(base_url="http://x", transport=transport, timeout=PATIENCE)

    def stream(self) -> socket.socket:
        """A connection on which an endless stream has begun."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE)
        sock.connect(str(self.path))
        body = json.dumps({**BODY, "stream": True}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        assert b"200 OK" in sock.recv(65_536)
        return sock


@contextmanager
def service(directory: Path, script: str = "text: hi", settings: str = "") -> Generator[Service]:
    program, path = Program(directory, directory), directory / "socket"
    program.config.mkdir(parents=True, exist_ok=True)
    (program.config / "config.toml").write_text(settings)
    with program.start_scripted(script, "--server", "--socket", str(path)) as process:
        running = Service(program, process, path)
        running.wait_for("Serving")
        try:
            yield running
        finally:
            process.kill()


ENDLESS = "chunk: 1\ndelay: 0.05\ntext: " + "word " * 100_000


def test_ctl_shows_drains_and_ends_a_server(tmp_path: Path) -> None:
    with service(tmp_path, ENDLESS) as running, running.stream():
        status = running.ctl("status")
        assert (status["status"], status["requests"]["running"]) == ("ready", 1)
        assert status["pid"] == running.process.pid
        assert [model["name"] for model in status["models"]]
        table = running.program.run("ctl", "status", "--socket", str(running.path))
        assert "1 running" in table.stdout
        assert running.ctl("drain") == {"status": "draining", "running": 1}
        assert running.get("/ready").status_code == 503
        log = running.get("/admin/log").json()["lines"]
        assert [line for line in log if line["message"].startswith("Draining")]
        with running.client() as client:
            refused = client.post(CHAT, json=BODY)
        assert refused.json()["error"]["code"] == "server_draining"
        assert running.ctl("shutdown", "--seconds", "0")["status"] == "stopping"
        assert running.process.wait(PATIENCE) == 0
    assert not running.path.exists()


def test_reload_applies_what_has_changed_and_nothing_of_a_broken_file(tmp_path: Path) -> None:
    with service(tmp_path, settings='[server]\nauth_mode = "none"\n') as running:
        file = running.program.config / "config.toml"
        assert running.ctl("reload") == {"changed": [], "need_restart": []}
        file.write_text('[server]\nmax_headers = 9\nport = 1234\naliases = { one = "default" }\n')
        reloaded = running.ctl("reload")
        assert reloaded["changed"] == ["server.max_headers", "server.aliases"]
        assert reloaded["need_restart"] == ["server.port"]
        names = [model["id"] for model in running.get("/v1/models").json()["data"]]
        assert "one" in names
        with running.client() as client:
            headers = {f"x-{number}": "y" for number in range(12)}
            assert client.get("/health", headers=headers).status_code == 431
        file.write_text("[server]\nmax_headers = 'many'\n")
        ended = running.program.run("ctl", "reload", "--socket", str(running.path))
        assert ended.returncode == 1
        assert "Nothing was changed: " in ended.stderr
        assert "max_headers" in ended.stderr
        os.kill(running.process.pid, signal.SIGHUP)
        running.wait_for("Nothing was changed")
        names = [model["id"] for model in running.get("/v1/models").json()["data"]]
        assert "one" in names
        file.write_text("")
        os.kill(running.process.pid, signal.SIGHUP)
        running.wait_for("Reloaded the settings: server.max_headers, server.aliases")


def test_the_model_is_another_one_after_a_reload_only_if_it_loads(tmp_path: Path) -> None:
    program, path = Program(tmp_path, tmp_path), tmp_path / "socket"
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"text: I am {name}")
    file = program.config / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[model]\nname = "script:{tmp_path / "one"}"\n')
    with program.start("--server", "--socket", str(path)) as process:
        running = Service(program, process, path)
        running.wait_for("Serving")

        def answer() -> str:
            with running.client() as client:
                return client.post(CHAT, json=BODY).json()["choices"][0]["message"]["content"]

        assert answer() == "I am one"
        file.write_text(f'[model]\nname = "script:{tmp_path / "none"}"\n')
        refused = program.run("ctl", "reload", "--socket", str(path))
        assert (refused.returncode, "Nothing was changed" in refused.stderr) == (1, True)
        assert answer() == "I am one"
        file.write_text(f'[model]\nname = "script:{tmp_path / "two"}"\n')
        assert running.ctl("reload")["changed"] == ["model.name"]
        assert answer() == "I am two"
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_running_requests_end_after_the_time_of_the_settings(tmp_path: Path) -> None:
    settings = "[server]\nshutdown_seconds = 0.2\n"
    with service(tmp_path, ENDLESS, settings) as running, running.stream() as stream:
        running.process.terminate()
        while stream.recv(65_536):
            pass
        assert running.process.wait(PATIENCE) == 0


def test_ctl_reaches_a_server_with_an_admin_key(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    admin = keys.add("admin", lambda key: structs.replace(key, scopes=frozenset({KeyScope.ADMIN})))
    backend = ScriptedBackend(parse_script("text: hi"))
    with RunningServer(backend, ServerSettings(port=0), keys) as server:
        program = Program(tmp_path, tmp_path, {"SHEPHERD_ADMIN_KEY": admin})
        ended = program.run("ctl", "status", "--url", server.url)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "ready" in ended.stdout
        printed = program.run("ctl", "status", "--url", f"{server.url}/v1")
        assert (printed.returncode, printed.stderr) == (0, "")
        wrong = Program(tmp_path, tmp_path).run("ctl", "status", "--url", server.url)
        assert wrong.returncode == 1
        assert wrong.stderr.startswith("shepherd: An API key is needed")
        assert "SHEPHERD_ADMIN_KEY" in wrong.stderr
    gone = Program(tmp_path, tmp_path).run("ctl", "status", "--url", server.url)
    assert gone.returncode == 1
    assert f"{server.url} can't be reached" in gone.stderr
    assert gone.stderr.endswith("Is it running, and is the address right?\n")
    gone = Program(tmp_path, tmp_path).run("ctl", "status", "--socket", str(tmp_path / "none"))
    assert f"The server at {tmp_path / 'none'} can't be reached" in gone.stderr


@contextmanager
def listener(directory: Path) -> Generator[socket.socket]:
    """The socket of systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(PATIENCE)
        sock.bind(str(directory / "notify"))
        yield sock


def test_systemd_hears_of_the_start_of_reloads_and_of_the_end(tmp_path: Path) -> None:
    with listener(tmp_path) as systemd:
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"}
        program = Program(tmp_path, tmp_path, env)
        with program.start_scripted("text: hi", "--server", "--port", "0") as process:
            heard = {systemd.recv(1000) for _ in range(2)}
            assert heard == {b"READY=1", b"WATCHDOG=1"}
            process.send_signal(signal.SIGHUP)
            first, second = systemd.recv(1000).split(b"\n")
            assert (first, second.partition(b"=")[0]) == (b"RELOADING=1", b"MONOTONIC_USEC")
            assert systemd.recv(1000) == b"READY=1"
            process.terminate()
            assert systemd.recv(1000) == b"STOPPING=1"
            process.communicate(timeout=PATIENCE)


async def test_signs_of_life_are_sent_twice_in_the_time_of_systemd(tmp_path: Path) -> None:
    import asyncio

    with listener(tmp_path) as systemd:
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
        async with Notifier.from_env(env).beating():
            heard = [await asyncio.to_thread(systemd.recv, 100) for _ in range(3)]
        assert heard == [b"WATCHDOG=1"] * 3
        assert env == {}


async def test_the_watchdog_of_another_process_is_ignored(tmp_path: Path) -> None:
    import asyncio

    with listener(tmp_path) as systemd:
        for pid, heard in ((os.getppid(), []), (os.getpid(), [systemd])):
            env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
            async with Notifier.from_env({**env, "WATCHDOG_PID": str(pid)}).beating():
                await asyncio.sleep(0)  # the first sign is sent at once
            assert select.select([systemd], [], [], 0)[0] == heard


def test_a_socket_that_is_gone_is_logged_and_none_is_no_problem(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Notifier().send("READY=1")
    assert caplog.messages == []
    Notifier.from_env({"NOTIFY_SOCKET": "/nowhere"}).send("READY=1")
    assert ["READY=1" in message for message in caplog.messages] == [True]


def test_an_abstract_socket_of_systemd_is_reached() -> None:
    name = f"shepherd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(PATIENCE)
        systemd.bind("\0" + name)
        Notifier.from_env({"NOTIFY_SOCKET": f"@{name}"}).send("READY=1", "STATUS=x")
        assert systemd.recv(100) == b"READY=1\nSTATUS=x"


async def test_a_reload_that_fails_is_ready_again() -> None:
    async def broken() -> Reloaded:
        raise ConfigError("a wrong value")

    heard: list[str] = []
    lifecycle = Lifecycle(heard.append, broken)
    with pytest.raises(ConfigError):
        await lifecycle.begin_reload()
    assert heard == ["reloading", "ready"]

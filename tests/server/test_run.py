"""Where the server listens, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shepherd.backends.base import Backend
from shepherd.errors import ConfigError, ModelLoadError
from shepherd.server.access.keys import KeyStore
from shepherd.server.app import Offer
from shepherd.server.listen import bind, url_of
from shepherd.server.run import serve
from shepherd.server.settings import ServerSettings
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from tests.patience import PATIENCE
from tests.server.harness import HI, chat_request
from tests.server.held import HeldBackend

SHEPHERD = str(Path(sys.executable).with_name("shepherd"))

PROGRAM = """
import asyncio, sys
from shepherd.server.run import serve
from shepherd.server.settings import ServerSettings
from tests.server.held import HeldBackend

class Announcing(HeldBackend):
    async def aclose(self):
        print("closed, stopped:", self.stopped, file=sys.stderr)

async def main():
    async def open_backend():
        return Announcing(hold_generation=True)
    await serve(open_backend, ServerSettings(port=0))

asyncio.run(main())
"""


class Program:
    """The program above, its port, and what it says on stderr."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.port = urlsplit(self.wait_for("Serving held at").split()[-1]).port or 0

    def wait_for(self, text: str) -> str:
        """Read stderr up to a line that contains `text`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return line
        raise AssertionError(f"ended without saying {text!r}")

    def wait_until_refused(self) -> None:
        """Connect until the listening socket is closed."""
        with suppress(ConnectionRefusedError, ConnectionResetError):
            while True:
                socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE).close()

    def connect(self) -> socket.socket:
        """A connection on which a stream has begun."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        sock.sendall(chat_request({"messages": HI, "stream": True}))
        assert b"200 OK" in sock.recv(65_536)
        return sock


STUCK = """
import threading
from shepherd.server import run

run.CLOSE_SECONDS = 0.1

def stick():
    threading.Thread(target=threading.Event().wait).start()
    threading.Event().wait()
""" + PROGRAM.replace("async def aclose(self):", "async def aclose(self):\n        stick()")
"""The same with a backend that never closes, and one more thread that never ends."""


@contextmanager
def program(source: str = PROGRAM) -> Generator[Program]:
    command = [sys.executable, "-c", source]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_an_idle_server(number: signal.Signals) -> None:
    with program() as running:
        running.process.send_signal(number)
        running.wait_for("closed, stopped: 0")
        assert running.process.wait(PATIENCE) == 0


def test_signal_ends_a_server_whose_model_can_not_be_closed() -> None:
    with program(STUCK) as running:
        running.process.send_signal(signal.SIGTERM)
        running.wait_for("were not closed in 0.1 seconds")
        assert running.process.wait(PATIENCE) == 1


def test_running_requests_are_waited_for_and_a_second_signal_ends_them() -> None:
    with program() as running, running.connect() as stream:
        running.process.send_signal(signal.SIGTERM)
        running.wait_for("Waiting for 1 running")
        running.wait_until_refused()
        assert running.process.poll() is None
        running.process.send_signal(signal.SIGINT)
        running.wait_for("closed, stopped: 1")
        assert running.process.wait(PATIENCE) == 0
        while stream.recv(65_536):
            pass


def test_drained_server_ends_when_its_client_goes() -> None:
    with program() as running:
        with running.connect():
            running.process.send_signal(signal.SIGTERM)
            running.wait_for("Waiting for 1 running")
        running.wait_for("closed, stopped: 1")
        assert running.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_machines_are_not_served_without_keys(host: str) -> None:
    with pytest.raises(ConfigError, match=r"Refusing to listen on .* without authentication"):
        bind(ServerSettings(host=host, port=0))


@pytest.mark.parametrize(
    "settings",
    [
        ServerSettings(host="0.0.0.0", port=0, insecure=True),
        ServerSettings(host="localhost", port=0),
        ServerSettings(host="127.1.2.3", port=0),
    ],
)
def test_addresses_that_may_be_served(settings: ServerSettings) -> None:
    with bind(settings) as sock:
        assert url_of(settings, sock).startswith(f"http://{settings.host}:")


def test_keys_allow_every_address() -> None:
    with bind(ServerSettings(host="0.0.0.0", port=0), authenticated=True) as sock:
        assert sock.getsockname()[0] == "0.0.0.0"


def test_unknown_host_is_named() -> None:
    with pytest.raises(ConfigError, match=r"can't listen on host 'no\.such\.host\.invalid'"):
        bind(ServerSettings(host="no.such.host.invalid"))


async def test_taken_port_is_told_before_a_model_is_loaded() -> None:
    opened: list[Backend] = []

    async def open_backend() -> Backend:
        opened.append(HeldBackend())
        return opened[0]

    with bind(ServerSettings(port=0)) as taken:
        taken.listen()
        port: int = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} on 127.0.0.1 is in use"):
            await serve(open_backend, ServerSettings(port=port))
    assert not opened


async def test_model_that_does_not_load_frees_the_port() -> None:
    own = "127.83.2.9"  # no program takes its ports by chance
    with bind(ServerSettings(host=own, port=0)) as free:
        settings = ServerSettings(host=own, port=free.getsockname()[1])

    async def open_backend() -> Backend:
        raise ModelLoadError("no such model")

    for _ in range(2):
        with pytest.raises(ModelLoadError, match="no such model"):
            await serve(open_backend, settings)


def test_taken_port_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with bind(ServerSettings(port=0)) as taken:
        taken.listen()
        port: int = taken.getsockname()[1]
        command = [SHEPHERD, "--server", "--port", str(port)]
        ended = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=2 * PATIENCE,
        )
    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines()[-1].endswith("is in use; choose another with --port.")
    assert len(ended.stderr.strip().splitlines()) == 1


async def _no_backend() -> Backend:
    raise ModelLoadError("not wanted here")


async def _warnings(
    caplog: pytest.LogCaptureFixture, keys: KeyStore | None, tools: ToolRunner | None
) -> list[str]:
    """What a server says that starts with these, before it loads its model."""
    with pytest.raises(ModelLoadError):
        await serve(_no_backend, ServerSettings(port=0), keys, Offer(tools))
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def test_tools_that_anybody_may_run_are_warned_about(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    context = ToolContext(cwd=tmp_path, spill_dir=tmp_path)
    tools = ToolRunner(ToolRegistry(), PermissionPolicy(tmp_path), DenyingApprover(), context)
    keys = KeyStore(tmp_path / "keys.json")
    keys.add("laptop")
    assert await _warnings(caplog, keys, tools) == []
    assert await _warnings(caplog, None, None) == []
    [warning] = await _warnings(caplog, None, tools)
    assert "/v1/tools is open without a key" in warning


async def test_key_file_is_looked_at_before_a_model_is_loaded(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    [warning] = await _warnings(caplog, keys, None)
    assert "There are no API keys yet" in warning
    keys.path.write_text("broken")
    keys.path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"keys\.json is damaged"):
        await serve(_no_backend, ServerSettings(port=0), keys)

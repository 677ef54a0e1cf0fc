"""A deployment on real Ray, in a home of its own."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from shepherd.cli.deploy.cluster import PREFIX
from tests.forked import SHEPHERD

LONG_PATIENCE = 240.0
"""Seconds: Ray starts half a dozen programs, each of which imports much."""

LAUNCHES, BUSY = 4, "Ray does not start here: The current node timed out"

CHAT = "/v1/chat/completions"
MODEL = ("--set", "llamacpp.threads=1", "--set", "llamacpp.context_size=4096")


@dataclass(frozen=True)
class Deployment:
    """A running `shepherd deploy ray`; `key` opens everything."""

    url: str
    process: "subprocess.Popen[bytes]"
    home: Path
    key: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=LONG_PATIENCE)

    def async_client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None)
        return httpx.AsyncClient(
            base_url=self.url, headers=self.headers, timeout=LONG_PATIENCE, limits=limits
        )

    def status(self) -> dict[str, Any]:
        with self.client() as client:
            response = client.get("/admin/status")
        return response.json() if response.is_success else {"pid": ""}

    def pids(self) -> list[int]:
        """The processes of the replicas."""
        return [int(pid) for pid in str(self.status()["pid"]).split(", ") if pid]

    def ctl(self, *arguments: str) -> str:
        """What `shepherd ctl` prints."""
        command = [SHEPHERD, "ctl", *arguments, "--url", self.url]
        env = environment(self.home) | {"SHEPHERD_ADMIN_KEY": self.key}
        process = subprocess.run(command, env=env, capture_output=True, check=False)
        assert process.returncode == 0, process.stderr.decode()
        return process.stdout.decode()


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


def deployed(
    home: Path, *options: str, settings: Sequence[str] = MODEL, key: str = ""
) -> AbstractContextManager[Deployment]:
    """Deploy on a free port, and end it; then nothing of Ray is left."""
    return _running(home, [*settings, "deploy", "ray", *options], key)


@contextmanager
def ray_cluster(home: Path) -> Generator[str]:
    """The address of a cluster of this machine alone; it ends with all that runs in it."""
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [str(Path(SHEPHERD).with_name("ray")), "start", "--head", "--block"]
    options = {
        "port": port,
        "num-cpus": 8,
        "node-ip-address": "127.0.0.1",
        "include-dashboard": "false",
        "temp-dir": tempfile.mkdtemp(prefix="ray-", dir="/tmp"),
        "object-store-memory": 128 * 2**20,
    }
    command += [f"--{name}={value}" for name, value in options.items()]
    env = environment(home) | {"RAY_USAGE_STATS_ENABLED": "0"}
    log = home / "ray.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=env, cwd=home, stdout=file, stderr=file, start_new_session=True
        )
    try:
        until(lambda: process.poll() is not None or b"runtime started" in log.read_bytes())
        assert process.poll() is None, log.read_text()
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LONG_PATIENCE)
        shutil.rmtree(str(options["temp-dir"]), ignore_errors=True)


def deploy_to(cluster: str, home: Path, *options: str, settings: Sequence[str] = MODEL) -> None:
    """Deploy in a cluster, or change what runs there; it goes on after this."""
    command = [SHEPHERD, *settings, "deploy", "ray", "--address", cluster, *options]
    process = subprocess.run(
        command, env=environment(home), cwd=home, capture_output=True, check=False
    )
    assert process.returncode == 0, process.stderr.decode()


def served(home: Path, *options: str) -> AbstractContextManager[Deployment]:
    """One server without Ray."""
    return _running(home, [*MODEL, "--server", *options], "")


def _launched(home: Path, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    """The program once it serves, or once it has failed."""
    log = home / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [SHEPHERD, *arguments],
            env=environment(home),
            cwd=home,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until(lambda: process.poll() is not None or b"Serving" in log.read_bytes())
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process


def _serving(home: Path, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    """The program as it serves; Ray gives itself 30 s to start, too few on a busy machine."""
    for _ in range(LAUNCHES):
        process = _launched(home, arguments)
        if process.poll() is None:
            return process
        if BUSY not in (home / "log").read_text():
            break
    raise AssertionError((home / "log").read_text())


@contextmanager
def _running(home: Path, arguments: Sequence[str], key: str) -> Generator[Deployment]:
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    process = _serving(home, [*arguments, "--port", str(port)])
    try:
        yield Deployment(f"http://127.0.0.1:{port}", process, home, key)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(LONG_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    assert not list(Path(tempfile.gettempdir()).glob(f"{PREFIX}{process.pid}-*"))


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fails when it takes far too long."""
    deadline = time.monotonic() + LONG_PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def chat(messages: Sequence[Any], max_tokens: int = 8, **fields: Any) -> dict[str, Any]:
    """The body of a greedy chat request."""
    return {"messages": messages, "max_tokens": max_tokens, "temperature": 0, **fields}


@dataclass
class Streamed:
    """What came of a stream: its chunks, and the error that ended it."""

    status: int = 0
    chunks: int = 0
    error: dict[str, Any] | None = None
    done: bool = False
    failure: str = ""


async def stream(
    client: httpx.AsyncClient, body: dict[str, Any], begun: asyncio.Semaphore | None = None
) -> Streamed:
    """Read a chat stream to its end; `begun` is released at its first chunk."""
    result = Streamed()
    try:
        async with client.stream("POST", CHAT, json={**body, "stream": True}) as response:
            result.status = response.status_code
            async for line in response.aiter_lines():
                _note(result, line)
                if begun is not None and result.chunks:
                    begun.release()
                    begun = None
    except httpx.HTTPError as error:
        result.failure = repr(error)
    return result


def _note(result: Streamed, line: str) -> None:
    data = line.removeprefix("data: ")
    if data == "[DONE]":
        result.done = True
    elif line.startswith("data: "):
        event = json.loads(data)
        result.error = event.get("error", result.error)
        result.chunks += 1
    elif line and not line.startswith(":"):
        result.failure = line


async def together(*work: Any) -> list[Any]:
    """The results of all."""
    return list(await asyncio.gather(*work))

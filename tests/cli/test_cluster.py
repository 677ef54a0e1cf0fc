"""A provider with several servers, with the real program: stored, tested, served, on view."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.backends.openai_server import openai_server
from tests.cli.program import Program
from tests.patience import PATIENCE


@pytest.fixture
def gone() -> Iterator[str]:
    """The address of a server that is not there."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


async def out(program: Program, *arguments: str, code: int = 0) -> str:
    done = await asyncio.to_thread(program.run, *arguments)
    assert done.returncode == code, done.stderr
    return done.stdout


async def test_servers_are_stored_tested_and_checked(program: Program, gone: str) -> None:
    async with openai_server("I am here.") as server:
        added = ("provider", "add", "cluster", "--type", "openai", "--base-url", server.url)
        await out(program, *added, "--base-url", gone, "--affinity-slack", "4")
        assert json.dumps([server.url, gone]) in (program.config / "providers.toml").read_text()
        assert "2 servers" in await out(program, "provider", "list")
        address = f"address       {server.url}/v1, {gone}/v1"
        assert address in await out(program, "provider", "show", "cluster")
        tested = await out(program, "provider", "test", "cluster", code=1)
        assert tested.index("model: small") < tested.index(f"can't be reached at {gone}/v1")
        checks = json.loads(await out(program, "doctor", "--json"))["checks"]
        upstreams = [check for check in checks if check["name"] == "upstream"]
        assert [(check["state"], check["text"]) for check in upstreams] == [
            ("ok", f"cluster: {server.url} answers"),
            ("note", f"cluster: {gone} does not answer"),
        ]
        assert "can't be reached" in upstreams[1]["advice"][0]
        assert "I am here." in await out(program, "--provider", "cluster", "-e", "hello")
        await out(program, "provider", "set", "cluster", "base-urls", f"{server.url}, {gone}/x")
        assert f"{gone}/x" in (program.config / "providers.toml").read_text()
    refused = await asyncio.to_thread(
        program.run, "provider", "set", "cluster", "base-urls", "http://u:secret@host"
    )
    assert refused.returncode == 2
    assert "secret" not in refused.stderr


async def test_a_vendors_key_goes_to_no_server_of_others(program: Program, gone: str) -> None:
    async with openai_server("I am here.") as server:
        with_key = Program(program.home, program.work, {"OPENAI_API_KEY": "sk-secret-123456"})
        added = ("provider", "add", "mixed", "--type", "openai", "--base-url", server.url)
        await out(with_key, *added, "--base-url", gone)
        await out(with_key, "--provider", "mixed", "-e", "hello")
        assert server.requests
        assert all("authorization" not in request.headers for request in server.requests)


async def test_a_server_shows_its_upstreams(program: Program, gone: str, tmp_path: Path) -> None:
    async with openai_server("I am here.") as server:
        program.config.mkdir(parents=True)
        (program.config / "providers.toml").write_text(
            f'[cluster]\ntype = "openai"\nbase_urls = ["{server.url}", "{gone}"]\n'
        )
        path = str(tmp_path / "socket")
        with program.start("--server", "--provider", "cluster", "--socket", path) as process:
            try:
                await asyncio.to_thread(_wait_for, process.stderr, "Serving")
                await _see(program, path, server.url, gone)
            finally:
                process.kill()


async def _see(program: Program, path: str, url: str, gone: str) -> None:
    transport = httpx.AsyncHTTPTransport(uds=path)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://x", timeout=PATIENCE
    ) as client:
        body = {"messages": [{"role": "user", "content": "hi"}]}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.json()["choices"][0]["message"]["content"] == "I am here."
        metrics = (await client.get("/metrics")).text
    labels = 'model="small",upstream="{}"'
    assert f"shepherd_upstream_up{{{labels.format(url)}}} 1.0" in metrics
    assert f"shepherd_upstream_up{{{labels.format(gone)}}} 0.0" in metrics
    assert f"shepherd_upstream_requests_total{{{labels.format(url)}}} 1.0" in metrics
    status = await out(program, "ctl", "status", "--socket", path)
    assert f"upstream     {url} up (0 running, 1 requests" in status
    assert f"upstream     {gone} down (0 running, 0 requests): cluster can't be reached" in status
    [model] = json.loads(await out(program, "ctl", "status", "--json", "--socket", path))["models"]
    assert [state["health"] for state in model["upstreams"]] == ["up", "down"]


def _wait_for(stream: Iterator[str] | None, text: str) -> None:
    assert stream is not None
    assert any(text in line for line in stream)

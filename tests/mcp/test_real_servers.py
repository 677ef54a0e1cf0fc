"""Servers that others wrote, in the sandbox where there is one.

The servers of npm, and that of `mcp-server-fetch`, are skipped where they are not installed:

    npm install --prefix ~/.cache/shepherd-clients @modelcontextprotocol/server-{everything,...}
    PATH=~/.cache/shepherd-clients/node_modules/.bin:$PATH pytest tests/mcp/test_real_servers.py
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from shepherd.config.section import SandboxMode
from shepherd.mcp.servers import Server, ServerState
from shepherd.tools.deferred import FindTools, listed_tools
from tests.flat_events import flat
from tests.mcp.harness import Office, open_office, server

GIT = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com"]


def installed(name: str, program: str, *args: str, **values: Any) -> Server:
    """The definition of an installed server; without it the test is skipped."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    return server(name, command=program, args=[*args], **values)


@asynccontextmanager
async def working_with(base: Path, *servers: Server) -> AsyncGenerator[Office]:
    env = {name: os.environ[name] for name in ("PATH", "HOME")}
    opened = open_office(base, servers, sandbox=SandboxMode.AUTO, env=env)
    async with opened as office:
        assert [entry.state for entry in office.hub.entries] == [ServerState.READY] * len(servers)
        yield office


async def text(office: Office, name: str, /, **arguments: Any) -> str:
    result = await office.call(name, **arguments)
    assert result.ok, result.content
    return result.content


def git(directory: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=directory, check=True, capture_output=True)


async def test_time_and_git(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.txt").write_text("one\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "Begin")
    (root / "a.txt").write_text("two\n")
    servers = [
        server(name, command=sys.executable, args=["-m", f"mcp_server_{name}"])
        for name in ("time", "git")
    ]
    async with working_with(tmp_path, *servers) as office:
        tokyo = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        times = json.loads(await text(office, "time__convert_time", **tokyo))
        assert times["target"]["datetime"].endswith("T21:00:00+09:00")
        unknown = await office.call("time__get_current_time", timezone="Nowhere")
        assert (unknown.ok, "Invalid timezone" in unknown.content) == (False, True)
        wrong = await office.call("time__get_current_time", zone="UTC")
        assert "it is time__get_current_time(timezone: string)" in wrong.content
        assert "Begin" in await text(office, "git__git_log", repo_path=str(root))
        assert "+two" in await text(office, "git__git_diff_unstaged", repo_path=str(root))
        await check_search(office)


async def check_search(office: Office) -> None:
    """The schemas of both are too large for the prompt, and a search brings in the right one."""
    office.runner.registry.add(FindTools())
    assert len(listed_tools(office.runner.registry, 500)) == 2
    result = await office.call("find_tools", query="what changed in the working directory")
    assert "git__git_diff_unstaged(repo_path: string" in result.content


async def test_everything(tmp_path: Path) -> None:
    async with working_with(tmp_path, installed("all", "mcp-server-everything")) as office:
        assert await text(office, "all__echo", message="hello") == "Echo: hello"
        assert "is 3" in await text(office, "all__get_sum", a=1, b=2)
        picture = await office.call("all__get_tiny_image")
        assert [image.media_type for image in picture.images] == ["image/png"]
        weather = await text(office, "all__get_structured_content", location="New York")
        assert json.loads(weather).keys() == {"temperature", "conditions", "humidity"}
        links = await text(office, "all__get_resource_links", count=2)
        assert links.count("[link to the resource ") == 2
        progress: list[str] = []
        await office.call(
            "all__trigger_long_running_operation",
            on_event=lambda event: not progress.append(flat(event).content),
            duration=0.2,
            steps=2,
        )
        assert progress


async def test_filesystem(tmp_path: Path) -> None:
    definition = installed("files", "mcp-server-filesystem", ".")
    async with working_with(tmp_path, definition) as office:
        path = str(office.root / "new.txt")
        assert "Successfully wrote" in await text(
            office, "files__write_file", path=path, content="hello\n"
        )
        assert (office.root / "new.txt").read_text() == "hello\n"
        assert (await text(office, "files__read_text_file", path=path)).strip() == "hello"
        outside = await office.call("files__write_file", path=str(tmp_path / "b"), content="x")
        assert not outside.ok
        assert not (tmp_path / "b").exists()


async def test_memory(tmp_path: Path) -> None:
    file = tmp_path / "project" / "memory.jsonl"
    definition = installed("memory", "mcp-server-memory", env={"MEMORY_FILE_PATH": str(file)})
    entity = {"name": "Bo", "entityType": "dog", "observations": ["barks"]}
    async with working_with(tmp_path, definition) as office:
        await text(office, "memory__create_entities", entities=[entity])
        nodes = json.loads(await text(office, "memory__search_nodes", query="Bo"))
        assert nodes["entities"] == [entity]
    assert file.exists()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


async def test_fetch(tmp_path: Path) -> None:
    definition = installed("fetch", "mcp-server-fetch", "--allow-private-ips", network=True)
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.txt").write_text("a page of this machine\n")
    handler = partial(_Quiet, directory=str(pages))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        Thread(target=web.serve_forever, daemon=True).start()
        try:
            async with working_with(tmp_path, definition) as office:
                url = f"http://127.0.0.1:{web.server_port}/index.txt"
                assert "a page of this machine" in await text(office, "fetch__fetch", url=url)
        finally:
            web.shutdown()

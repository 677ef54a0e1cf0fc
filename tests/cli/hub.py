"""A hub that serves models from memory, over real HTTP."""

import hashlib
import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from huggingface_hub import constants

from tests.patience import PATIENCE, POLL

COMMIT = "a" * 40


class Hub(ThreadingHTTPServer):
    """One repository, by default `team/model-GGUF`.

    `cut` is the bytes after which the next download breaks off. While `stalls` it then sends
    nothing more instead, until `go_on` is set. With `whole` it knows no ranges.
    """

    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes], name: str = "team/model-GGUF") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name = name
        self.files = files
        self.lies = False
        self.cut: int | None = None
        self.stalls = False
        self.whole = False
        self.go_on = threading.Event()
        self.ranges: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def listing(self) -> dict[str, Any]:
        return {
            "id": self.name,
            "sha": COMMIT,
            "tags": ["gguf", "license:apache-2.0"],
            "siblings": [
                {"rfilename": n, "size": len(d), "blobId": "b", "lfs": self._lfs(d)}
                for n, d in self.files.items()
            ],
        }

    def _lfs(self, data: bytes) -> dict[str, Any]:
        sha256 = hashlib.sha256(data + b"?" * self.lies).hexdigest()
        return {"sha256": sha256, "size": len(data), "pointerSize": 100}


@contextmanager
def hub(files: Mapping[str, bytes], name: str = "team/model-GGUF") -> Generator[Hub]:
    with Hub(files, name) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def near_hub(files: Mapping[str, bytes]) -> Generator[Hub]:
    """A hub for this process; others find it by HF_ENDPOINT."""
    with hub(files) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", server.url)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server


class _Handler(BaseHTTPRequestHandler):
    @property
    def hub(self) -> Hub:
        assert isinstance(self.server, Hub)
        return self.server

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._file(body=False)

    def do_GET(self) -> None:
        if self.path.startswith(f"/api/models/{self.hub.name}"):
            self._send(200, json.dumps(self.hub.listing()).encode(), {})
        elif self.path.startswith("/api/"):
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        else:
            self._file(body=True)

    def _file(self, *, body: bool) -> None:
        name = self.path.partition("?")[0].partition("/resolve/main/")[2]
        name = name or self.path.partition(f"/resolve/{COMMIT}/")[2]
        data = self.hub.files.get(name)
        if data is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        headers = {"ETag": etag, "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        start = self._start()
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(206 if start else 200, data[start:], headers, body=body)

    def _start(self) -> int:
        asked = self.headers.get("Range", "")
        if asked:
            self.hub.ranges.append(asked)
        first = asked.removeprefix("bytes=").partition("-")[0]
        return int(first) if first.isdigit() and not self.hub.whole else 0

    def _send(
        self, status: int, data: bytes, headers: Mapping[str, str], *, body: bool = True
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if not body:
            return
        cut = self.hub.cut if "/resolve/" in self.path else None
        if cut is None:
            self.wfile.write(data)
            return
        self.hub.cut = None
        self.wfile.write(data[:cut])
        if self.hub.stalls:
            self.wfile.flush()
            self.hub.go_on.wait(PATIENCE)
        self.close_connection = True
        self.connection.close()

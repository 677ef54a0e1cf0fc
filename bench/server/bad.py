"""The effect of one client's bad requests on the others."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.server.measure import Notice, measure
from bench.server.requests import BAD_REQUESTS
from bench.table import markdown

_START_SECONDS = 60.0


def main(only: str, seconds: float) -> str:
    """The table of the bad requests whose names contain `only`, each for `seconds` at least."""
    rows: list[list[str]] = []
    with serving() as (url, process):
        rows.append(_row("nothing", measure(url, None, seconds), process))
        for name, make in BAD_REQUESTS.items():
            if only in name:
                rows.append(_row(name, measure(url, make(), seconds), process))
                print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ["one client sends", "answer", "after", "/health p99", "first token p50", "max", "RSS"]
    return markdown(header, rows)


@contextmanager
def serving() -> Generator[tuple[str, int]]:
    """A server of the built-in model in a separate process: its URL and process id."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}
        command = [Path(sys.executable).with_name("shepherd"), "--server", "--port", "0"]
        log = Path(home, "log")
        with log.open("wb") as stderr:
            process = subprocess.Popen(command, cwd=home, env=environment, stderr=stderr)
        try:
            yield _url(log), process.pid
        finally:
            process.kill()
            process.wait()


def _url(log: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        for word in log.read_text(encoding="utf-8").split():
            if word.startswith("http://"):
                url = word.removesuffix("/v1")
                if httpx.get(f"{url}/health").is_success:
                    return url
        time.sleep(0.1)
    raise TimeoutError(log.read_text(encoding="utf-8"))


def _row(name: str, notice: Notice, process: int) -> list[str]:
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    memory = pages * os.sysconf("SC_PAGE_SIZE") // 2**20
    return [name, notice.answer, *notice.times(), f"{memory} MiB"]

"""Memory of `shepherd --cliserver` over many requests: `python -m bench.memory [MODEL]`.

Without MODEL a script answers, so that the figures show only the server.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.table import markdown

SHEPHERD = str(Path(sys.executable).with_name("shepherd"))
REQUESTS, STEP = 600, 100
ANSWER = "text: " + " ".join(f"word{n}" for n in range(60)) + "\n"


def main() -> None:
    """Print the resident memory after each hundred requests."""
    with tempfile.TemporaryDirectory() as home:
        model = sys.argv[1] if len(sys.argv) > 1 else _script(Path(home))
        with _server(Path(home), model) as (process, url), httpx.Client(timeout=600) as client:
            rows = [("0", _resident(process.pid))]
            for number in range(1, REQUESTS + 1):
                body = {"prompt": f"Question {number}: how are you?"}
                client.post(f"{url}/request", json=body).raise_for_status()
                if number % STEP == 0:
                    rows.append((str(number), _resident(process.pid)))
    print(markdown(("requests", "resident memory"), rows))


def _script(home: Path) -> str:
    path = home / "answers.script"
    path.write_text("---\n".join([ANSWER] * REQUESTS))
    return f"script:{path}"


@contextmanager
def _server(home: Path, model: str) -> Generator[tuple["subprocess.Popen[bytes]", str]]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    command = [SHEPHERD, "--cliserver", "--port", "0", "--model", model]
    log = home / "log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            command, env=env, cwd=home, stdin=subprocess.DEVNULL, stderr=stderr
        ) as process,
    ):
        try:
            while "Serving session" not in log.read_text() and process.poll() is None:
                time.sleep(0.1)
            line = next(line for line in log.read_text().splitlines() if "Serving session" in line)
            yield process, line.split()[-1]
        finally:
            process.kill()


def _resident(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return f"{kib / 1024:.0f} MiB"


if __name__ == "__main__":
    main()

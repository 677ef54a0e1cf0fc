"""Run llama.cpp's own tests of its server against this one.

    python -m tests.clients.llamacpp FOLDER [ARGUMENTS OF PYTEST]

FOLDER is `tools/server/tests` of llama.cpp, for example in the source package of
llama-cpp-python (`pip download llama-cpp-python --no-binary :all: --no-deps`). The results are in
docs/conformance.md.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from importlib import import_module
from pathlib import Path

from tests.clients.llamacpp.program import run

HERE = Path(__file__).parent
STARTER = """#!{python} -SE
import json, os, signal, socket, sys
starter = socket.socket(socket.AF_UNIX)
starter.connect({path!r})
starter.sendall(json.dumps([os.getcwd(), *sys.argv[1:]]).encode() + b"\\n")
signal.signal(signal.SIGTERM, lambda *_: starter.shutdown(socket.SHUT_WR))
while starter.recv(100):
    pass
"""
"""A program that has a server forked, and lives as long as it: imports happen once."""


def main() -> int:
    """Run pytest beside a process that forks the servers; returns its exit code."""
    folder, *arguments = sys.argv[1:]
    for module in ("shepherd.mcp.links", "shepherd.mcp.tool"):
        import_module(module)  # which a server imports late, and slowly
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        path = home / "socket"
        program = home / "llama-server"
        program.write_text(STARTER.format(python=sys.executable, path=str(path)))
        program.chmod(0o755)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen(16)
        forking = os.fork()
        if not forking:
            _fork_servers(listening, home)
        env = os.environ | {
            "LLAMA_SERVER_BIN_PATH": str(program),
            "PYTHONPATH": os.pathsep.join((str(HERE), str(Path.cwd()))),
        }
        command = [sys.executable, "-m", "pytest", "-p", "plugin", "-m", "not slow", *arguments]
        try:
            return subprocess.run(command, cwd=folder, env=env, check=False).returncode
        finally:
            os.kill(forking, signal.SIGKILL)


def _fork_servers(listening: socket.socket, home: Path) -> None:
    """Fork a server for each connection, until this process is killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listening.close()
        _serve(connection, home)


def _serve(connection: socket.socket, home: Path) -> None:
    """Serve until the program that asked for it has ended."""
    folder, *arguments = json.loads(connection.makefile().readline())
    os.chdir(folder)

    def watch() -> None:
        connection.recv(10)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    try:
        asyncio.run(run(arguments, home))
    except Exception:  # noqa: BLE001 - the reason goes to the log of the tests
        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

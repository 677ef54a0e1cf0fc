"""Servers to measure against, each in its own process on 127.0.0.1."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SHEPHERD = str(Path(sys.executable).with_name("shepherd"))

_LLAMA_SERVER = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.port = int(sys.argv[2]), 1, 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[3])
params.verbosity, params.cache_ram_mib = 0, 0
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
threading.Event().wait()
"""


def threads() -> int:
    """The cores that this process may use: what both sides get."""
    return len(os.sched_getaffinity(0))


@contextmanager
def llama_server(model: Path, context: int) -> Generator[str]:
    """llama.cpp's own server; yields its base URL."""
    command = [sys.executable, "-c", _LLAMA_SERVER, str(model), str(context), str(threads())]
    with _served(command, dict(os.environ)) as url:
        yield url


@contextmanager
def shepherd_server(model: Path, context: int) -> Generator[str]:
    """Shepherd's server with an empty home; yields its base URL."""
    with tempfile.TemporaryDirectory() as home:
        command = [SHEPHERD, "--server", "--port", "0", "--model", str(model)]
        command += ["--context-size", str(context), "--set", f"llamacpp.threads={threads()}"]
        command += ["--set", "llamacpp.parallel=1"]
        env = {"PATH": os.environ["PATH"], "HOME": home}
        with _served(command, env) as url:
            yield url


@contextmanager
def _served(command: list[str], env: dict[str, str]) -> Generator[str]:
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield _address(process)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found.group()
    raise RuntimeError(f"the server did not start: {''.join(said[-5:])}")

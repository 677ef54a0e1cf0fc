"""The compared servers, each in a separate process on 127.0.0.1."""

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SHEPHERD = str(Path(sys.executable).with_name("shepherd"))

_LLAMA_SERVER = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.port = int(sys.argv[2]), int(sys.argv[4]), 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[3])
params.verbosity = 0
if params.n_parallel == 1:
    params.cache_ram_mib = 0
elif int(sys.argv[7]) >= 0:
    params.cache_ram_mib = int(sys.argv[7])
params.kv_unified = params.n_parallel > 1
if sys.argv[5] == "ngrams":
    params.n_cache_reuse = 256
    params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_MOD]
if sys.argv[5] == "mtp":
    params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_MTP]
if sys.argv[6] == "off":
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
threading.Event().wait()
"""


def threads() -> int:
    """The cores that this process may use; all sides get the same number."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a server: a model, the tokens of all sequences, their number, and threads.

    `host` are the MiB of its cache in host memory, -1 for the server's own default.
    """

    model: Path
    context: int
    parallel: int = 1
    threads: int = 0
    host: int = -1

    @property
    def cores(self) -> str:
        """The threads; by default one per core."""
        return str(self.threads or threads())


@contextmanager
def llama_server(
    load: Load, *, ngrams: bool = False, mtp: bool = False, flash: bool = True
) -> Generator[str]:
    """llama.cpp's own server; yields its base URL.

    Several sequences share one pool of cells, as with an automatic number of slots. With `ngrams`
    it drafts from the conversation, and reuses parts of a prompt behind a change. With `mtp` the
    model's own layer drafts. Without `flash` it does not use flash attention.
    """
    command = [sys.executable, "-c", _LLAMA_SERVER, str(load.model), str(load.context)]
    command += [load.cores, str(load.parallel), "mtp" if mtp else "ngrams" if ngrams else "plain"]
    command += ["auto" if flash else "off", str(load.host)]
    with served(command, dict(os.environ)) as url:
        yield url


@contextmanager
def llama_cpp_python_server(load: Load, packages: Path) -> Generator[str]:
    """llama-cpp-python's own server, which runs one sequence; yields its base URL.

    `packages` are those that Shepherd does not have. A request does not end the previous one.
    """
    command = [sys.executable, "-m", "llama_cpp.server", "--host", "127.0.0.1", "--port", "0"]
    command += ["--model", str(load.model), "--n_ctx", str(load.context), "--verbose", "false"]
    command += ["--n_threads", load.cores, "--n_threads_batch", load.cores]
    command += ["--interrupt_requests", "false"]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages)}
    with served(command, env) as url:
        yield url


@contextmanager
def shepherd_server(
    load: Load, *, home: Path | None = None, settings: Sequence[str] = ()
) -> Generator[str]:
    """Shepherd's server; yields its base URL. Without a `home` it has an empty one."""
    with tempfile.TemporaryDirectory() as empty:
        command = [SHEPHERD, "--server", "--port", "0", "--model", str(load.model)]
        command += ["--context-size", str(load.context)]
        for setting in (f"threads={load.cores}", f"parallel={load.parallel}", *settings):
            command += ["--set", f"llamacpp.{setting}"]
        env = {"PATH": os.environ["PATH"], "HOME": str(home or empty)}
        with served(command, env) as url:
            yield url


@contextmanager
def served(command: list[str], env: dict[str, str]) -> Generator[str]:
    """A server that prints its address when it is ready; yields that, and stops it."""
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with process:
        try:
            yield _address(process)
        finally:
            process.terminate()
            process.wait(timeout=60)


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    output: list[str] = []
    for line in process.stdout:
        output.append(line)
        if match := re.search(r"http://127\.0\.0\.1:\d+", line):
            # the rest of its output is not needed, but must not fill the pipe
            threading.Thread(target=deque, args=(process.stdout, 0), daemon=True).start()
            return match.group()
    raise RuntimeError(f"the server did not start: {''.join(output[-5:])}")

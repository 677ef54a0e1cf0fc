"""Tries a model's file in a process of its own: llama.cpp ends the process for some files.

llama.cpp checks most of a file by itself and reports what is wrong. Some numbers it only asserts,
in `llama_model_load_from_file` and while `llama_init_from_model` builds the graph, and a failed
assertion ends the process, with all that it serves. Which ones differs between 130 architectures.
So a file is loaded by a program of its own first, without weights and without memory for them. What
happens depends on the header alone: a header is tried once, and remembered.

The module is also that program.
"""

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from shepherd.backends.llamacpp.native.bindings import bindings, native_log
from shepherd.backends.llamacpp.native.gguf import read_header
from shepherd.catalog.model_files import parts_of
from shepherd.config.paths import Paths
from shepherd.errors import ModelLoadError
from shepherd.models import builtin_model

_SECONDS = 120.0
_CONTEXT = 256


def try_model(path: Path, folder: Path | None = None) -> None:
    """Raise ModelLoadError if loading this file would end the process.

    Headers that were tried are remembered in `folder`, by default the user's. Whatever llama.cpp
    reports by itself is left to the real loading.
    """
    if path == builtin_model() or not path.is_file():
        return
    folder = folder or Paths.from_env(os.environ).tried_models
    status = path.stat()
    file = folder / _digest(f"{path.absolute()} {status.st_size} {status.st_mtime_ns}".encode())
    if file.exists():
        return
    header = folder / _header_digest(path)
    if not header.exists() and (reason := failure_of(path)):
        raise ModelLoadError(f"{path} can't be loaded: {reason}")
    with suppress(OSError):  # it is tried again then
        folder.mkdir(parents=True, exist_ok=True)
        header.touch()
        file.touch()  # its header need not be read again


def _header_digest(path: Path) -> str:
    """Identifies the headers of all files of a model; raises ModelLoadError."""
    content = hashlib.sha256()
    for part in parts_of(path):
        with part.open("rb") as file:
            content.update(file.read(read_header(part).length))
    return _digest(content.digest())


def _digest(content: bytes) -> str:
    """A name for some content, and this build of llama.cpp."""
    status = Path(bindings().__file__).stat()
    build = f"{status.st_size} {status.st_mtime_ns} ".encode()
    return hashlib.sha256(build + content).hexdigest()[:32]


def failure_of(path: Path, python: str = sys.executable) -> str:
    """Why a file can't be loaded; "" if it can, or if llama.cpp says why it can't."""
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        result = subprocess.run(
            (python, "-P", "-m", __name__, str(path.absolute())),
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            cwd="/",  # an empty entry of PYTHONPATH would be a directory of a model
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return f"llama.cpp needs more than {_SECONDS:g} seconds to read its header."
    except OSError:  # no process can be started; loading says more
        return ""
    if result.returncode >= 0:
        return ""
    lines = result.stderr.decode("utf-8", "replace").splitlines()
    reason = next((line for line in lines if "GGML_" in line or "what():" in line), "")
    # As in `/build/llama-model.cpp:1361: GGML_ASSERT(hparams.n_expert <= 512) failed`.
    reason = reason.rsplit("/", 1)[-1] or f"signal {-result.returncode}"
    advice = "The file is damaged, or not for this version of llama.cpp."
    return f"llama.cpp ends with {reason}. {advice}"


def main(path: str) -> int:
    """Load a file without weights, and make a context for it."""
    lib = bindings()
    params = lib.llama_model_default_params()
    params.no_alloc, params.load_mode, params.n_gpu_layers = True, lib.LLAMA_LOAD_MODE_NONE, 0
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        return 1
    contexts = lib.llama_context_default_params()
    contexts.n_ctx, contexts.n_batch, contexts.n_seq_max = _CONTEXT, _CONTEXT, 2
    contexts.kv_unified = True
    lib.llama_init_from_model(model, contexts)
    native_log.take_errors()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    os._exit(code)  # nothing that follows matters

"""llama.cpp's own servers in a process of their own, which ends with the one that started it."""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from shepherd.models import builtin_model

KEY = "llama-key-1234"
CONTEXT = 1024

_SCRIPT = """
import json, os, sys, xllamacpp
def server(context, key, pure, endless, pooling, parallel):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.port = sys.argv[1], context, 0
    params.n_parallel, params.kv_unified = parallel, parallel > 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity, params.cache_ram_mib, params.warmup = 0, 0, False
    params.endpoint_slots = True
    params.api_keys = [key] if key else []
    params.force_pure_content_parser = pure
    params.ctx_shift = params.sampling.ignore_eos = endless
    if pooling:
        params.embedding, params.pooling_type = True, pooling
        params.n_batch = params.n_ubatch = context
    return xllamacpp.Server(params)
running = {name: server(**given) for name, given in json.loads(sys.argv[2]).items()}
print(json.dumps({name: s.listening_address for name, s in running.items()}), flush=True)
sys.stdin.read()
os._exit(0)
"""


@dataclass(frozen=True)
class LlamaServers:
    """Addresses of servers with Pup.

    `keyed` wants KEY; `pure` hands on what the model writes as it is, calls and thoughts among it;
    `endless` goes on until it is told to stop.
    """

    keyed: str
    pure: str
    endless: str


@dataclass(frozen=True)
class _Given:
    context: int = CONTEXT
    key: str = ""
    pure: bool = False
    endless: bool = False
    pooling: int = 0
    parallel: int = 1


_SERVERS = {
    "keyed": _Given(key=KEY),
    "pure": _Given(pure=True),
    "endless": _Given(endless=True),
}


@contextmanager
def llama_servers() -> Generator[LlamaServers]:
    """The servers, healthy, for as long as the context is entered."""
    with _running(builtin_model(), _SERVERS) as (_, addresses):
        yield LlamaServers(**addresses)


@contextmanager
def killable_server(context: int, parallel: int) -> Generator[tuple["subprocess.Popen[str]", str]]:
    """A server in a process of its own, which answers until its limit of tokens."""
    settings = _Given(context=context, parallel=parallel, endless=True)
    with _running(builtin_model(), {"only": settings}) as (process, addresses):
        yield process, addresses["only"]


@contextmanager
def embedding_server(model: Path, pooling: int, context: int) -> Generator[str]:
    """The address of a server with a model that makes vectors or scores."""
    with _running(model, {"only": _Given(context=context, pooling=pooling)}) as (_, addresses):
        yield addresses["only"]


@contextmanager
def _running(
    model: Path, servers: Mapping[str, _Given]
) -> Generator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    given = json.dumps({name: asdict(server) for name, server in servers.items()})
    command = [sys.executable, "-c", _SCRIPT, str(model), given]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()

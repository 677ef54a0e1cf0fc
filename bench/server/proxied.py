"""A proxied model server beside itself: what Shepherd and LiteLLM's proxy add to a request."""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bench.peers import SHEPHERD, served
from bench.server.load import Post, latencies, rate
from bench.server.upstream import MODEL
from bench.table import markdown, ratio

ALONE, OURS, LITELLM = "the model server alone", "Shepherd before it", "LiteLLM before it"
WHOLE, STREAM = "whole", "stream"
_CHAT = "/v1/chat/completions"
_PROMPT = "Tell me about sheep, please. " * 20
_ALIVE = "/health/liveliness"
_START_SECONDS = 300.0
_NO_KEY = "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: rounds of requests, and of seconds with `clients` at once."""

    rounds: int = 5
    requests: int = 300
    seconds: float = 4.0
    clients: int = 32
    warm_up: int = 200


QUICK = Sizes(rounds=1, requests=20, seconds=0.5, clients=4, warm_up=5)


@dataclass
class Figures:
    """The seconds of requests one after the other, and requests per second of many clients."""

    seconds: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])

    @property
    def p50(self) -> float:
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


def main(sizes: Sizes, litellm: Path | None) -> str:
    """The table; without LiteLLM's program it has no such rows."""
    with ExitStack() as stack:
        upstream = stack.enter_context(upstream_server())
        urls = {ALONE: upstream, OURS: stack.enter_context(shepherd_before(upstream))}
        if litellm is not None:
            urls[LITELLM] = stack.enter_context(litellm_before(upstream, litellm))
        figures = asyncio.run(measure(urls, sizes))
    missing = "" if litellm else "\n\nLiteLLM is left out: name its program with `--litellm PATH`."
    return table(figures) + missing


async def measure(urls: dict[str, str], sizes: Sizes) -> dict[tuple[str, str], Figures]:
    """Alternating rounds of all sides, by answer and side."""
    found = {(kind, side): Figures() for kind in (WHOLE, STREAM) for side in urls}
    posts = {(kind, side): post(urls[side], stream=kind == STREAM) for kind, side in found}
    for one in posts.values():
        await latencies(one, sizes.warm_up)
    for _ in range(sizes.rounds):
        for key, one in posts.items():
            found[key].seconds += await latencies(one, sizes.requests)
        for key, one in posts.items():
            found[key].rates.append(await rate(one, sizes.clients, sizes.seconds))
            print(f"{key}: {found[key].rates[-1]:.0f}/s", file=sys.stderr, flush=True)
    return found


def post(url: str, *, stream: bool) -> Post:
    """The request to one side."""
    messages = [{"role": "user", "content": _PROMPT}]
    return Post(url, _CHAT, {"model": MODEL, "messages": messages, "stream": stream})


def table(figures: dict[tuple[str, str], Figures]) -> str:
    """One row for each answer and side."""
    rows: list[list[str]] = []
    for (kind, side), measured in figures.items():
        alone, slow = figures[kind, ALONE], figures.get((kind, LITELLM))
        added = "–" if side == ALONE else f"{(measured.p50 - alone.p50) * 1000:.2f} ms"
        beside = ratio(measured.rate, slow.rate) if slow and side == OURS else "–"
        p50, speed = f"{measured.p50 * 1000:.2f} ms", f"{measured.rate:.0f}"
        rows.append([kind, side, p50, added, speed, beside])
    header = ["answer", "side", "p50", "added", "requests/s", "beside LiteLLM"]
    return markdown(header, rows)


@contextmanager
def upstream_server() -> Generator[str]:
    """A model server that answers at once; yields its address."""
    command = [sys.executable, "-m", "bench.server.upstream"]
    with served(command, dict(os.environ)) as url:
        yield url


@contextmanager
def shepherd_before(upstream: str) -> Generator[str]:
    """Shepherd with the upstream as its provider."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, ".config", "shepherd")
        folder.mkdir(parents=True)
        provider = f'[up]\ntype = "openai"\nmodel = "{MODEL}"\nbase_url = "{upstream}/v1"\n'
        folder.joinpath("providers.toml").write_text(provider, encoding="utf-8")
        command = [SHEPHERD, "--server", "--port", "0", "--provider", "up"]
        with served(command, {"PATH": os.environ["PATH"], "HOME": home}) as url:
            yield url


@contextmanager
def litellm_before(upstream: str, program: Path) -> Generator[str]:
    """LiteLLM's proxy with one worker."""
    with tempfile.TemporaryDirectory() as home:
        model = {"model": f"openai/{MODEL}", "api_base": f"{upstream}/v1", "api_key": "none"}
        settings = {"model_list": [{"model_name": MODEL, "litellm_params": model}]}
        config = Path(home, "config.yaml")
        config.write_text(json.dumps(settings), encoding="utf-8")
        command = [str(program), "--config", str(config), "--host", "127.0.0.1"]
        port = _free_port()
        command += ["--port", str(port), "--num_workers", "1"]
        env = {"PATH": os.environ["PATH"], "HOME": home, "LITELLM_LOG": "ERROR"}
        env |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", _NO_KEY: "true"}
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet) as process:
            try:
                yield _ready(process, f"http://127.0.0.1:{port}")
            finally:
                process.terminate()


def _ready(process: "subprocess.Popen[bytes]", url: str) -> str:
    """The URL once the proxy answers there; it prints nothing that says so."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.get(url + _ALIVE, trust_env=False).is_success:
                return url
        time.sleep(0.2)
    raise RuntimeError(f"LiteLLM's proxy did not start: {process.args!r}")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]

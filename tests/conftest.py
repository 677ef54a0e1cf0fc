"""What holds for all tests."""

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from shepherd.config.paths import Paths
from shepherd.tools.sandbox.view.private import remove_tree
from tests import certificates, examples, workers
from tests.cli.program import Program, share_measurements

FOREIGN = re.compile(
    r"(?i).*_proxy|.*_api_key|(openai|anthropic|gemini|google|ollama|hf|huggingface|xdg|git)_.*"
    r"|shepherd_(?!(examples|seed)$).*|columns|lines|(no|force|cli)_?color.*|term_program.*|tmux|env"
    r"|bash_env|cdpath|ripgrep_config_path|ssl_cert_.*|(requests|curl)_ca_bundle"
    r"|python(warnings|devmode|ioencoding|utf8|startup|inspect|optimize|dontwritebytecode)"
    r"|posixly_correct"
)
"""Variables of whoever runs the tests that would change what programs do or say."""
WORKER_BYTES = 3 << 30
"""Memory that a worker may need: models, their contexts, and the programs that it starts."""


IMPURE = frozenset({"socket.connect", "socket.bind", "socket.getaddrinfo", "os.forkpty"})
"""Events of Python's audit that no test of a pure room causes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pure", action="store_true", help="refuse models, sockets and terminals")


def pytest_configure(config: pytest.Config) -> None:
    """Take SIGINT also as a background job, which ignores it, and let a slow machine be slow.

    A third of the time of importing all tests would go into collections of what stays anyway.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    examples.register()
    _leave_home(config)
    sys.dont_write_bytecode = False
    if config.getoption("--pure"):
        sys.addaudithook(_refuse)
    elif not hasattr(config, "workerinput"):
        workers.fork_workers(config)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program.in_empty_home(tmp_path)


@pytest.fixture
def deep_place(tmp_path: Path) -> Generator[Path]:
    """A directory for more directories in each other than pytest itself could remove."""
    place = tmp_path / "deep"
    place.mkdir()
    yield place
    remove_tree(place)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in IMPURE or (event == "import" and arguments[0] == "llama_cpp"):
        raise AssertionError(f"{event} in a quick test: take its file out of the Makefile's QUICK")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have long tests, so that no worker is alone with one at the end."""
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    """All modules are imported: share what their clients read, and leave them uncollected."""
    certificates.share()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto`: four more than there are cores, because many tests wait, if there is memory.

    xdist itself reads the environment's number.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    from shepherd.backends.llamacpp.native.devices import available_memory

    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(cores + 4, available_memory() // WORKER_BYTES))


def _leave_home(config: pytest.Config) -> None:
    """Nothing on the machine that belongs to its user counts: settings, keys, caches, proxies."""
    tried = Paths.from_env(os.environ).tried_models  # in a worker: of who hands the tests out
    for name in filter(FOREIGN.fullmatch, list(os.environ)):
        del os.environ[name]
    home = tempfile.mkdtemp(prefix="shepherd-home-")
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ["HOME"] = home
    if hasattr(config, "workerinput"):
        share_measurements(Path(home), tried)
    else:
        Paths.from_env(os.environ).tried_models.mkdir(parents=True)

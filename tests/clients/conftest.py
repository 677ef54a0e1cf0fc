"""Packages of others may warn; a server for those that need no tools of their own."""

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.clients.assistant import assistant
from tests.clients.page import PAGE
from tests.clients.serving import Server, serve
from tests.clients.versions import version, with_versions

HERE = Path(__file__).parent
ROWS = pytest.StashKey[dict[tuple[str, str], bool]]()
"""Whether the tests of each row of the page, by its client and API, have all passed."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    passed = item.config.stash.setdefault(ROWS, {})
    rows = [mark.args for mark in item.iter_markers("client")]
    others = [passed.get(row, True) for row in rows]
    passed.update(dict.fromkeys(rows, False))
    yield  # raises what the test raises
    passed.update(zip(rows, others, strict=True))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the versions that have passed into the page, if `make test-clients` runs."""
    if "CLIENT_VERSIONS" in os.environ:
        passed = session.config.stash.setdefault(ROWS, {})
        versions = {row: version(row[0]) for row, good in passed.items() if good}
        PAGE.write_text(with_versions(PAGE.read_text("utf-8"), versions), "utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose model is the assistant.

    Afterwards it collects the open clients, because warnings about them are ignored here.
    """
    with serve(assistant, tmp_path_factory.mktemp("server")) as running:
        yield running
    gc.collect()

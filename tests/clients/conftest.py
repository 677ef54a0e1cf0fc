"""Packages of others may warn; a server for those that need no tools of their own."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.assistant import assistant
from tests.clients.serving import Server, serve

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose model is the assistant.

    Afterwards it collects the open clients, because warnings about them are ignored here.
    """
    with serve(assistant, tmp_path_factory.mktemp("server")) as running:
        yield running
    gc.collect()

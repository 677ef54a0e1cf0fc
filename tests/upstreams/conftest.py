from collections.abc import Iterator

import pytest

from tests.upstreams.llama_servers import LlamaServers, llama_servers


@pytest.fixture(scope="session")
def llama() -> Iterator[LlamaServers]:
    with llama_servers() as servers:
        yield servers

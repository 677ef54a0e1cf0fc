"""Requests free their memory at once: a cycle of references would hold it until a collection."""

import asyncio
import gc
from collections.abc import Iterator
from itertools import product

import httpx
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from tests.backends.llamacpp.support import PUP, settings
from tests.examples import some
from tests.integration.wires import WIRES, Asked, Json, Wire
from tests.patience import PATIENCE
from tests.server.harness import RunningServer

ROUNDS = 3
SCHEMA: Json = {"type": "string", "enum": ["dog"]}
KINDS = {
    "plain": Asked("pup", ["Say a word."], max_tokens=8),
    "schema": Asked("pup", ["Say a word."], SCHEMA),
    "refused": Asked("pup", ["Say a word."], {"type": "string", "enum": []}),
}


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    loop = asyncio.new_event_loop()
    backend = loop.run_until_complete(
        LlamaCppBackend.load(PUP, settings(context_size=512), parallel=2, name="pup")
    )
    with (
        RunningServer(backend, loop=loop) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE, trust_env=False) as client,
    ):
        yield client
        server.do(backend.aclose())


@pytest.fixture
def kept_garbage() -> Iterator[None]:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def own_garbage() -> set[str]:
    """The classes of Shepherd and of its bindings whose objects only a collection can free."""
    gc.collect()
    kinds: set[type[object]] = {type(found) for found in gc.garbage}
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
    return {name for name in names if name.startswith(("shepherd.", "llama_cpp."))}


@pytest.mark.long
@pytest.mark.parametrize(
    ("wire", "kind", "stream"),
    some([*product(WIRES, KINDS, (False, True))], "cycles", 8),
    ids=lambda value: getattr(value, "name", str(value)),
)
@pytest.mark.usefixtures("kept_garbage")
def test_a_request_leaves_no_cycle(
    http: httpx.Client, wire: Wire, kind: str, *, stream: bool
) -> None:
    asked = KINDS[kind]
    for _ in range(ROUNDS):
        response = http.post(
            wire.url(asked, stream=stream), json=wire.request(asked, stream=stream)
        )
        assert response.is_error == (kind == "refused"), response.text
    assert own_garbage() == set()

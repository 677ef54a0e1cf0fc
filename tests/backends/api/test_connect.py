"""Which model it is and how large its context, asked of a scripted upstream."""

from collections.abc import Callable
from typing import Any

import pytest

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.errors import AccessError, InvalidRequestError, UnreachableError
from tests.backends.api.plain_adapter import PlainAdapter
from tests.backends.api.support import options
from tests.backends.api.upstream import Received, Reply, Upstream


def server(*models: dict[str, Any], props: int = 0) -> Callable[[Received], Reply]:
    def answer(request: Received) -> Reply:
        if request.path == "/v1/models":
            return Reply({"models": list(models)})
        return Reply({"size": props}) if request.path == "/v1/props" and props else Reply("", 404)

    return answer


async def connected(up: Upstream, traits: ModelTraits, size: int = 0) -> ApiBackend:
    backend = await ApiBackend.connect(
        Endpoint(up.url + "/v1", name="acme"),
        PlainAdapter(),
        traits,
        context_size=size,
        options=options(),
    )
    await backend.aclose()
    return backend


@pytest.mark.parametrize(
    ("listed", "props", "known", "setting", "size", "source"),
    [
        (4096, 8192, 100, 512, 512, "setting"),
        (4096, 8192, 100, 0, 8192, "the probe"),
        (4096, 0, 100, 0, 4096, "the list"),
        (0, 0, 100, 0, 100, "the model database"),
        (0, 0, 0, 0, 0, ""),
    ],
)
async def test_who_knows_best(
    listed: int, props: int, known: int, setting: int, size: int, source: str
) -> None:
    async with Upstream(server({"id": "m1", "size": listed}, {"id": "m2"}, props=props)) as up:
        backend = await connected(up, ModelTraits("m1", context_size=known), setting)
    assert (backend.info.id, backend.info.context_size) == ("m1", size)
    assert backend.traits.context_size == size
    assert source in backend.window.source


async def test_the_only_model_is_taken() -> None:
    async with Upstream(server({"id": "only", "size": 7000})) as up:
        backend = await connected(up, ModelTraits(""))
    assert (backend.info.id, backend.info.context_size) == ("only", 7000)


async def test_of_several_models_one_must_be_chosen() -> None:
    async with Upstream(server({"id": "a"}, {"id": "b"})) as up:
        with pytest.raises(InvalidRequestError, match="a, b"):
            await connected(up, ModelTraits(""))
    async with Upstream() as up:
        with pytest.raises(InvalidRequestError, match="name one"):
            await connected(up, ModelTraits(""))


async def test_a_server_without_a_list_is_believed() -> None:
    async with Upstream() as up:
        backend = await connected(up, ModelTraits("m9", context_size=5))
    assert (backend.info.id, backend.info.context_size) == ("m9", 5)


async def test_who_cannot_come_in_is_told() -> None:
    async with Upstream(lambda _: Reply("", 401)) as up:
        with pytest.raises(AccessError, match="acme"):
            await connected(up, ModelTraits("m1"))
    with pytest.raises(UnreachableError, match="acme"):
        await connected(up, ModelTraits("m1"))

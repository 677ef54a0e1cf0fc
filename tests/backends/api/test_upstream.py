"""The scripted upstream does what its script says."""

import asyncio

import httpx
import pytest

from tests.backends.api.upstream import Reply, Upstream
from tests.patience import PATIENCE


async def test_replies_come_in_order_and_requests_are_kept() -> None:
    replies = [Reply({"a": 1}), Reply("slow down", status=429, headers={"retry-after": "3"})]
    async with Upstream(replies) as up, httpx.AsyncClient(timeout=PATIENCE) as client:
        first = await client.post(f"{up.url}/v1/x?y=z", json={"q": "ä"}, headers={"X-K": "v"})
        second = await client.get(up.url)
        third = await client.get(up.url)
    assert first.json() == {"a": 1}
    assert (second.status_code, second.text, second.headers["retry-after"]) == (
        429,
        "slow down",
        "3",
    )
    assert third.status_code == 404
    request = up.requests[0]
    assert (request.method, request.path, request.query) == ("POST", "/v1/x", {"y": "z"})
    assert request.json == {"q": "ä"}
    assert request.headers["x-k"] == "v"
    assert up.connections == 1


async def test_a_body_can_be_cut() -> None:
    for reply in (Reply("0123456789", cut_after=4), Reply(["0123", "456"], cut_after=4)):
        async with (
            Upstream([reply]) as up,
            httpx.AsyncClient(timeout=PATIENCE) as client,
            client.stream("GET", up.url) as response,
        ):
            body = response.aiter_raw()
            assert await anext(body) == b"0123"
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(body)


async def test_a_client_that_hangs_up_is_noticed() -> None:
    never = asyncio.Event()
    async with (
        Upstream([Reply.sse([{"a": 1}, never])]) as up,
        httpx.AsyncClient(timeout=PATIENCE) as client,
    ):
        async with client.stream("GET", up.url) as response:
            first = await anext(response.aiter_raw())
        await asyncio.wait_for(up.requests[0].hung_up.wait(), PATIENCE)
    assert first == b'data: {"a": 1}\n\n'


async def test_a_function_can_answer_and_a_connection_can_fail() -> None:
    def answer(request: object) -> Reply:
        return Reply(cut_after=-1) if len(up.requests) == 1 else Reply("x", until_close=True)

    async with Upstream(answer) as up, httpx.AsyncClient(timeout=PATIENCE) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(up.url)
        assert (await client.get(up.url)).text == "x"

"""Clients of all APIs that come and go at random, and hold each answer to their own request."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeAlias

import httpx

from tests.integration.clients import resident_bytes
from tests.integration.echo import answer, order
from tests.integration.wires import (
    RESPONSES,
    WIRES,
    Asked,
    Json,
    Wire,
    event,
    response_ends,
    response_piece,
    response_text,
)
from tests.patience import PATIENCE

BUSY = (429, 503)
PAUSE = 0.05
PUP_EVERY = 10
"""Every so many requests the built-in model answers one; its answers take longest."""

ECHO, PUP, VECTORS = "echo", "pup", "vectors"
TEXTS = [f"the dog sleeps in house {number}" for number in range(16)]


class BusyServerError(Exception):
    """The server says that the client should come back."""


Way: TypeAlias = Callable[[httpx.AsyncClient, Wire], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Order:
    """A request, and the only right text of its answer."""

    wire: Wire
    asked: Asked
    expected: str

    @property
    def body(self) -> Json:
        return self.wire.request(self.asked, stream=False)


@dataclass
class WireCrowd:
    """Clients of one server; `ends` counts how their requests ended, by API."""

    url: str
    random: Random
    clients: int
    ends: Counter[str] = field(default_factory=Counter[str])
    memory: list[int] = field(default_factory=list[int])
    vectors: dict[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    stored: set[str] = field(default_factory=set[str])
    _marks: int = 0
    _begun: int = 0
    _plan: list[tuple[Way, Wire]] = field(init=False)

    def __post_init__(self) -> None:
        self._plan = self._make_plan()

    async def run(self, go_on: Callable[[int], bool]) -> None:
        """Let the clients ask while `go_on`, which gets the number of requests so far."""
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self.url, timeout=10 * PATIENCE, limits=limits, trust_env=False
        ) as http:
            for text in TEXTS:
                self.vectors[text] = await self._vector(http, text)
            await asyncio.gather(*(self._client(http, go_on) for _ in range(self.clients)))

    async def delete_stored(self) -> None:
        """Delete the responses that clients left."""
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE, trust_env=False) as http:
            for name in [*self.stored]:
                await self._delete(http, name)

    async def _client(self, http: httpx.AsyncClient, go_on: Callable[[int], bool]) -> None:
        while go_on(self._begun):
            way, wire = self._plan[self._begun % len(self._plan)]
            self._begun += 1
            self.ends[await self._until_served(http, way, wire)] += 1
            self.memory.append(resident_bytes())

    async def _until_served(self, http: httpx.AsyncClient, way: Way, wire: Wire) -> str:
        while True:
            try:
                return await way(http, wire)
            except BusyServerError:
                self.ends["busy"] += 1
                await asyncio.sleep(PAUSE)

    def _make_plan(self) -> list[tuple[Way, Wire]]:
        """All ways on all wires, in any order."""
        ways: list[Way] = [self._whole, self._streamed]
        ways += [*ways, self._left_early, self._left_midway]
        plan = [(way, wire) for way in ways for wire in WIRES]
        own: list[Way] = [self._stored, self._in_background, self._followed, self._embedded]
        plan += [(way, RESPONSES) for way in own * 2]
        self.random.shuffle(plan)
        return plan

    def _order(self, wire: Wire) -> Order:
        """A request that no other one is like."""
        self._marks += 1
        mark = self._marks
        if not mark % PUP_EVERY:
            schema = {"type": "string", "enum": [f"m{mark}"]}
            return Order(wire, Asked(PUP, ["Say a word."], schema), json.dumps(f"m{mark}"))
        pieces = self.random.randint(1, 12)
        turns = [order(mark + 7, 2), "no"] * self.random.randrange(3) + [order(mark, pieces)]
        return Order(wire, Asked(ECHO, turns), answer(mark, pieces))

    async def _whole(self, http: httpx.AsyncClient, wire: Wire) -> str:
        order = self._order(wire)
        url = wire.url(order.asked, stream=False)
        data = await _object(http, "POST", url, json=order.body)
        text = wire.text(data)
        assert text == order.expected, f"{wire.name}: {text!r}, not {order.expected!r}"
        return f"{wire.name}: answered"

    async def _streamed(self, http: httpx.AsyncClient, wire: Wire, events: int = 1_000_000) -> str:
        """Read a stream, or hang up behind so many events."""
        order, text, ended = self._order(wire), "", False
        url = wire.url(order.asked, stream=True)
        body = wire.request(order.asked, stream=True)
        async with http.stream("POST", url, json=body) as response:
            await _check(response)
            async for line in response.aiter_lines():
                data = event(line)
                if data is None:
                    continue
                text += wire.piece(data)
                ended = wire.last(data)
                events -= 1
                if events < 0:
                    assert order.expected.startswith(text)
                    return f"{wire.name}: hung up"
        assert ended, f"{wire.name}: a stream ended early, behind {text!r}"
        assert text == order.expected, f"{wire.name}: {text!r}, not {order.expected!r}"
        return f"{wire.name}: streamed"

    async def _left_early(self, http: httpx.AsyncClient, wire: Wire) -> str:
        try:
            async with asyncio.timeout(self.random.random() * 0.3):
                return await self._whole(http, wire)
        except TimeoutError:
            return f"{wire.name}: hung up while waiting"

    async def _left_midway(self, http: httpx.AsyncClient, wire: Wire) -> str:
        return await self._streamed(http, wire, self.random.randrange(12))

    async def _stored(self, http: httpx.AsyncClient, wire: Wire) -> str:
        """A stored response, one that continues it, and the end of both."""
        order = self._order(wire)
        first = await self._stored_response(http, order)
        further = self._order(wire)
        asked = replace(further.asked, turns=further.asked.turns[-1:])
        further = replace(further, asked=asked)
        second = await self._stored_response(http, further, previous_response_id=first)
        again = await _object(http, "GET", f"/v1/responses/{second}")
        assert response_text(again) == further.expected
        items = await _object(http, "GET", f"/v1/responses/{second}/input_items?limit=100")
        assert len(items["data"]) == len(order.asked.turns) + 2
        for name in (first, second):
            await self._delete(http, name)
        return "responses: stored"

    async def _stored_response(self, http: httpx.AsyncClient, order: Order, **more: Any) -> str:
        body = order.body | {"store": True} | more
        data = await _object(http, "POST", "/v1/responses", json=body)
        self.stored.add(data["id"])
        assert response_text(data) == order.expected
        return data["id"]

    async def _delete(self, http: httpx.AsyncClient, name: str) -> None:
        data = await _object(http, "DELETE", f"/v1/responses/{name}")
        assert data == {"id": name, "object": "response", "deleted": True}
        self.stored.remove(name)

    async def _in_background(self, http: httpx.AsyncClient, wire: Wire) -> str:
        """A response that is waited for, or cancelled, or left alone."""
        order = self._order(wire)
        name = await self._begin(http, order)
        data: Json = {"status": "queued"}
        for _ in range(self.random.randrange(20)):
            data = await _object(http, "GET", f"/v1/responses/{name}")
            if data["status"] not in ("queued", "in_progress"):
                break
            await asyncio.sleep(PAUSE)
        else:
            if self.random.random() < 0.5:
                return "responses: left in the background"
            data = await _object(http, "POST", f"/v1/responses/{name}/cancel")
            assert data["status"] in ("cancelled", "completed"), data
        if data["status"] == "completed":
            assert response_text(data) == order.expected
        await self._delete(http, name)
        return f"responses: {data['status']} in the background"

    async def _followed(self, http: httpx.AsyncClient, wire: Wire) -> str:
        """The events of a background response, which a client reads over several connections."""
        order = self._order(wire)
        name = await self._begin(http, order)
        number, text, ended = -1, "", False
        while not ended:
            query = {"stream": "true"} | ({"starting_after": number} if number >= 0 else {})
            async with http.stream("GET", f"/v1/responses/{name}", params=query) as response:
                if response.status_code == 400:  # many others ended meanwhile
                    return "responses: too late to follow"
                await _check(response)
                left = self.random.randrange(1, 8)
                async for line in response.aiter_lines():
                    data = event(line)
                    if data is None:
                        continue
                    assert data["sequence_number"] == number + 1
                    number += 1
                    text += response_piece(data)
                    ended, left = response_ends(data), left - 1
                    if ended or not left:
                        break
        assert text == order.expected
        await self._delete(http, name)
        return "responses: followed"

    async def _begin(self, http: httpx.AsyncClient, order: Order) -> str:
        body = order.body | {"store": True, "background": True}
        data = await _object(http, "POST", "/v1/responses", json=body)
        self.stored.add(data["id"])
        return data["id"]

    async def _embedded(self, http: httpx.AsyncClient, _wire: Wire) -> str:
        text = self.random.choice(TEXTS)
        vector = await self._vector(http, text)
        nearest = min(TEXTS, key=lambda other: _distance(vector, self.vectors[other]))
        assert nearest == text
        assert _distance(vector, self.vectors[text]) < 1e-3
        return "embeddings: answered"

    async def _vector(self, http: httpx.AsyncClient, text: str) -> Sequence[float]:
        body = {"model": VECTORS, "input": text}
        data = await _object(http, "POST", "/v1/embeddings", json=body)
        (item,) = data["data"]
        return item["embedding"]


async def _object(http: httpx.AsyncClient, method: str, url: str, **options: Any) -> Json:
    response = await http.request(method, url, **options)
    await _check(response)
    return response.json()


async def _check(response: httpx.Response) -> None:
    """Raise BusyServerError if the client should come back, and fail for all other errors."""
    if response.status_code in BUSY:
        assert "retry-after" in response.headers, await response.aread()
        raise BusyServerError
    assert response.status_code == 200, (response.url, await response.aread())


def _distance(vector: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(vector, other, strict=True))

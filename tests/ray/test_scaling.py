"""Replicas come and go with the load."""

import asyncio
from pathlib import Path

import httpx

from tests.ray.deployment import CHAT, Deployment, chat, deployed, until

CLIENTS = 12
SCALING = ("--replicas", "1..3", "--queue", "2", "--up-seconds", "0", "--down-seconds", "1")


async def ask_until(client: httpx.AsyncClient, number: int, end: asyncio.Event) -> set[int]:
    """The statuses of requests, one after the other."""
    statuses: set[int] = set()
    turn = 0
    while not end.is_set():
        messages = [{"role": "user", "content": f"Client {number} counts to {turn}."}]
        response = await client.post(CHAT, json=chat(messages, 60, ignore_eos=True))
        statuses.add(response.status_code)
        turn += 1
    return statuses


async def load(deployment: Deployment, clients: int, replicas: int) -> set[int]:
    """The statuses of requests of some clients until there are so many replicas."""
    end = asyncio.Event()
    async with deployment.async_client() as client:
        asking = [asyncio.create_task(ask_until(client, n, end)) for n in range(clients)]
        await asyncio.to_thread(until, lambda: len(deployment.pids()) == replicas)
        end.set()
        return set[int]().union(*await asyncio.gather(*asking))


def test_replicas_follow_the_load_without_a_failed_request(home: Path, admin: str) -> None:
    with deployed(home, *SCALING, "--auth-mode", "json", key=admin) as deployment:
        assert len(deployment.pids()) == 1
        assert asyncio.run(load(deployment, CLIENTS, 3)) == {200}
        assert asyncio.run(load(deployment, 1, 1)) == {200}


def test_draining_stops_all_replicas(home: Path, admin: str) -> None:
    with deployed(home, "--replicas", "2", "--auth-mode", "json", key=admin) as deployment:
        with deployment.client() as client:
            assert client.post(CHAT, json=chat([{"role": "user", "content": "hi"}])).is_success
            deployment.ctl("drain", "--wait")
            refused = client.post(CHAT, json=chat([{"role": "user", "content": "hi"}]))
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "server_draining"
            assert client.get("/ready").status_code == 503
            assert client.get("/v1/models").status_code == 200
        assert len(deployment.pids()) == 2

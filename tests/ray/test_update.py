"""Deploying again with another setting replaces the replicas one after the other."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.ray.deployment import (
    CHAT,
    LONG_PATIENCE,
    MODEL,
    chat,
    deploy_to,
    free_port,
    ray_cluster,
    until,
)

CLIENTS = 6
BEFORE, AFTER = 5, 9
"""The tokens of an answer whose request sets no limit."""


def lengths(url: str) -> set[int]:
    """The tokens of several answers, which come from all replicas."""
    bodies = [
        {"messages": [{"role": "user", "content": f"Flock {n}."}], "ignore_eos": True}
        for n in range(8)
    ]
    answers = [httpx.post(url + CHAT, json=body, timeout=LONG_PATIENCE) for body in bodies]
    return {answer.json()["usage"]["completion_tokens"] for answer in answers}


async def ask_until(client: httpx.AsyncClient, number: int, end: asyncio.Event) -> Counter[int]:
    """The statuses of requests, one after the other, whole and streamed by turns."""
    statuses: Counter[int] = Counter()
    while not end.is_set():
        text = f"Client {number} counts to {statuses.total()}."
        stream = statuses.total() % 2 == 0
        body = chat([{"role": "user", "content": text}], 60, ignore_eos=True, stream=stream)
        response = await client.post(CHAT, json=body)
        whole = response.text.rstrip().endswith("data: [DONE]") if stream else response.json()
        statuses[response.status_code if whole else 0] += 1
    return statuses


async def load_during(url: str, work: Any) -> Counter[int]:
    """The statuses of all requests of some clients while the work goes on in a thread."""
    end = asyncio.Event()
    async with httpx.AsyncClient(base_url=url, timeout=LONG_PATIENCE) as client:
        asking = [asyncio.create_task(ask_until(client, n, end)) for n in range(CLIENTS)]
        try:
            await asyncio.to_thread(work)
        finally:
            end.set()
        return sum(await asyncio.gather(*asking), Counter[int]())


def test_an_update_under_load_fails_no_request(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    options = ("--replicas", "2", "--port", str(port))

    def deploy(tokens: int) -> None:
        settings = (*MODEL, "--set", f"model.max_tokens={tokens}")
        deploy_to(cluster, tmp_path, *options, settings=settings)

    def update() -> None:
        deploy(AFTER)
        until(lambda: lengths(url) == {AFTER})

    with ray_cluster(tmp_path) as cluster:
        deploy(BEFORE)
        assert lengths(url) == {BEFORE}
        statuses = asyncio.run(load_during(url, update))
    sys.stdout.write(f"{statuses.total()} requests during the update: {dict(statuses)}\n")
    assert set(statuses) == {200}

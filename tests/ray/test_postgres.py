"""Two replicas with one PostgreSQL, and no files in common."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs

from shepherd.config.paths import Paths
from shepherd.server.access.key import KeyLimits, KeyScope
from shepherd.server.access.keys import Keys
from shepherd.server.access.shared import keys_in
from shepherd.storage.postgres import Address, PostgresServer
from tests import postgres as real
from tests.ray.deployment import CHAT, MODEL, Deployment, chat, deployed, together, until

RESPONSES = "/v1/responses"
CONVERSATIONS, TURNS = 6, 4
LONG_TEXT = "The shepherd counts the sheep on the hill, and begins again. "


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    if problem := real.missing():
        pytest.skip(problem)
    server = real.RealPostgres()
    yield server.new_database()
    server.stop()


@pytest.fixture(scope="module")
def keys(address: Address) -> Keys:
    return keys_in(PostgresServer(address))


@pytest.fixture(scope="module")
def deployment(home: Path, address: Address, keys: Keys) -> Iterator[Deployment]:
    """Replicas that know only the database's address; libpq reads the password in ~/.pgpass."""
    admin = keys.add("all", lambda entry: structs.replace(entry, scopes=frozenset(KeyScope)))
    password = home / ".pgpass"
    password.touch(mode=0o600)
    password.write_text("*:*:*:*:" + address.password.replace(":", "\\:") + "\n")
    settings = (*MODEL, "--set", f"server.database={address.url}")
    options = ("--replicas", "2", "--auth-mode", "json")
    with deployed(home, *options, settings=settings, key=admin) as running:
        yield running


async def converse(client: httpx.AsyncClient, number: int) -> tuple[int, int, str]:
    """The cached and all prompt tokens after the first turn, and the last response.

    Each request holds only what is new.
    """
    body: dict[str, Any] = {"input": f"Flock {number}. {LONG_TEXT * 8}", "max_output_tokens": 8}
    cached = prompts = 0
    for turn in range(TURNS):
        response = await client.post(RESPONSES, json=body)
        assert response.status_code == 200, response.text
        answer = response.json()
        if turn:
            prompts += answer["usage"]["input_tokens"]
            cached += answer["usage"]["input_tokens_details"]["cached_tokens"]
        body = {**body, "input": f"And in year {turn}?", "previous_response_id": answer["id"]}
    return cached, prompts, body["previous_response_id"]


async def converse_often(client: httpx.AsyncClient) -> list[tuple[int, int, str]]:
    async with client:
        return await together(*(converse(client, number) for number in range(CONVERSATIONS)))


def test_stored_conversations_meet_their_caches_and_outlive_a_replica(
    deployment: Deployment,
) -> None:
    talks = asyncio.run(converse_often(deployment.async_client()))
    cached, prompts = sum(talk[0] for talk in talks), sum(talk[1] for talk in talks)
    sys.stdout.write(f"two replicas: {cached} of {prompts} prompt tokens were cached\n")
    assert cached >= 0.85 * prompts
    victim, other = deployment.pids()
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(set(deployment.pids()) | {other, victim}) == 3)
    with deployment.client() as client:
        for _, _, last in talks:
            body = {"input": "And now?", "previous_response_id": last, "max_output_tokens": 1}
            assert client.post(RESPONSES, json=body).status_code == 200
            assert client.get(f"{RESPONSES}/{last}").json()["id"] == last


def test_limits_and_usage_are_those_of_all_replicas(deployment: Deployment, keys: Keys) -> None:
    limits = KeyLimits(requests_per_minute=5)
    secret = keys.add("limited", lambda entry: structs.replace(entry, limits=limits))
    headers = {"Authorization": f"Bearer {secret}"}
    bodies = [
        chat([{"role": "user", "content": f"Flock {number} {LONG_TEXT}"}], 1)
        for number in range(12)
    ]
    models = f"{deployment.url}/v1/models"
    until(lambda: httpx.get(models, headers=headers).status_code == 200)
    statuses = [
        httpx.post(f"{deployment.url}{CHAT}", json=body, headers=headers).status_code
        for body in bodies
    ]
    assert statuses == [200] * 5 + [429] * 7


def test_nothing_is_kept_in_files(deployment: Deployment) -> None:
    paths = Paths.from_env({"HOME": str(deployment.home)})
    assert not paths.keys_file.exists()
    assert not list(deployment.home.rglob("*.sqlite"))
    assert not list(deployment.home.rglob("*.db"))

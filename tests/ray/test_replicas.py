"""Three replicas behave as one server."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
from msgspec import structs

from shepherd.server.access.key import KeyLimits
from shepherd.server.access.keys import KeyStore
from tests.ray.deployment import (
    CHAT,
    Deployment,
    Streamed,
    chat,
    served,
    stream,
    together,
    until,
)

CONVERSATIONS, TURNS = 9, 4
LONG_TEXT = "The shepherd counts the sheep on the hill, and begins again. "
ENDLESS: dict[str, Any] = {"max_tokens": 3500, "ignore_eos": True}
LONG: dict[str, Any] = {"max_tokens": 250, "ignore_eos": True}
SLOTS = 4
"""A replica answers so many requests at a time."""


async def converse(client: httpx.AsyncClient, number: int) -> tuple[int, int]:
    """The cached tokens and all prompt tokens of a conversation."""
    messages: list[Any] = [{"role": "user", "content": f"Flock {number}. " + LONG_TEXT * 8}]
    cached = prompts = 0
    for turn in range(TURNS):
        response = await client.post(CHAT, json=chat(messages))
        assert response.status_code == 200, response.text
        answer = response.json()
        prompts += answer["usage"]["prompt_tokens"]
        cached += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        messages.append(answer["choices"][0]["message"])
        messages.append({"role": "user", "content": f"And then, in year {turn}?"})
    return cached, prompts


async def converse_often(client: httpx.AsyncClient) -> tuple[int, int]:
    async with client:
        all_of = await together(*(converse(client, number) for number in range(CONVERSATIONS)))
    return sum(cached for cached, _ in all_of), sum(prompts for _, prompts in all_of)


def test_a_conversation_meets_its_cache(deployment: Deployment, tmp_path: Path) -> None:
    """Replicas find at least 95 % of the tokens that one server finds."""
    cached, prompts = asyncio.run(converse_often(deployment.async_client()))
    with served(tmp_path / "home") as one:
        cached_by_one, prompts_of_one = asyncio.run(converse_often(one.async_client()))
    sys.stdout.write(f"three replicas: {cached} of {prompts} prompt tokens were cached\n")
    sys.stdout.write(f"one server: {cached_by_one} of {prompts_of_one}\n")
    assert cached / prompts >= 0.95 * cached_by_one / prompts_of_one
    assert len(requests_by_replica(deployment)) == 3


def requests_by_replica(deployment: Deployment) -> dict[str, int]:
    """The chat requests that each replica has answered."""
    with deployment.client() as client:
        lines = client.get("/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("shepherd_requests_total{")]
    return {
        line.partition('replica="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2]))
        for line in counted
        if 'wire="openai"' in line and 'status="200"' in line and 'model="pup"' in line
    }


async def answers_during_a_kill(deployment: Deployment, requests: int) -> list[Streamed]:
    async with deployment.async_client() as client:
        bodies = [
            chat([{"role": "user", "content": f"Flock {n}. {LONG_TEXT * 4}"}], **LONG)
            for n in range(requests)
        ]
        victim = (await asyncio.to_thread(deployment.pids))[0]
        begun = asyncio.Semaphore(0)
        work = [asyncio.create_task(stream(client, body, begun)) for body in bodies]
        for _ in range(2 * SLOTS + 1):  # one of them, at least, is the victim's
            await begun.acquire()
        os.kill(victim, signal.SIGKILL)
        return list(await asyncio.gather(*work))


def test_a_killed_replica_loses_no_request_that_had_not_begun(deployment: Deployment) -> None:
    """Streams that had begun end with the API's error; all others are answered elsewhere."""
    results = asyncio.run(answers_during_a_kill(deployment, 18))
    until(lambda: len(deployment.pids()) == 3)
    ended = [result for result in results if result.error is not None]
    sys.stdout.write(f"{len(ended)} of {len(results)} streams ended with an error\n")
    assert all(result.status == 200 and not result.failure for result in results)
    assert all(result.done or result.error is not None for result in results)
    assert 1 <= len(ended) <= SLOTS + 1
    assert {result.error["code"] for result in ended if result.error} == {"replica_lost"}
    assert all(result.chunks > 1 for result in ended)


def test_a_client_that_leaves_frees_its_place(deployment: Deployment) -> None:
    """The replica notes that its client has left, and its slot is free again."""
    messages = [{"role": "user", "content": f"Leave. {LONG_TEXT * 4}"}]
    body = {**chat(messages, **ENDLESS), "temperature": 1, "stream": True}
    with deployment.client() as client:
        with client.stream("POST", CHAT, json=body) as response:
            assert next(response.iter_lines()).startswith("data: ")
        until(lambda: 'status="499",wire="openai"' in client.get("/metrics").text)
    until(lambda: deployment.status()["requests"]["running"] == 0)


def test_a_removed_key_opens_no_replica(deployment: Deployment, keys: KeyStore) -> None:
    headers = {"Authorization": f"Bearer {keys.add('guest')}"}
    bodies = [chat([{"role": "user", "content": f"{n}"}], 1) for n in range(9)]

    def statuses() -> set[int]:
        posted = [httpx.post(f"{deployment.url}{CHAT}", json=b, headers=headers) for b in bodies]
        return {response.status_code for response in posted}

    assert statuses() == {200}
    keys.remove("guest")
    assert statuses() == {401}


def test_the_id_of_a_request_comes_back(deployment: Deployment) -> None:
    with deployment.client() as client:
        response = client.get("/v1/models", headers={"x-request-id": "my-id"})
        refused = client.post(CHAT, json={"messages": 1}, headers={"x-request-id": "other-id"})
    assert response.headers.get_list("x-request-id") == ["my-id"]
    assert response.headers["request-id"] == "my-id"
    assert refused.status_code == 400
    assert refused.headers.get_list("x-request-id") == ["other-id"]


def test_a_body_that_is_too_large_is_refused_by_a_replica(deployment: Deployment) -> None:
    with deployment.client() as client:
        headers = {"content-type": "application/json"}
        response = client.post(CHAT, content=b" " * (17 * 2**20), headers=headers)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"


def test_measurements_name_their_replica(deployment: Deployment) -> None:
    with deployment.client() as client:
        text = client.get("/metrics").text
        without_key = httpx.get(f"{deployment.url}/metrics")
    replicas = {
        line.partition('replica="')[2].partition('"')[0]
        for line in text.splitlines()
        if line and not line.startswith("#")
    }
    assert len(replicas) == 3
    assert text.count("# TYPE shepherd_requests_total counter") == 1
    assert without_key.status_code == 401


def test_the_status_is_that_of_all_replicas(deployment: Deployment) -> None:
    status = deployment.status()
    assert status["status"] == "ready"
    assert len(status["models"]) == 3
    assert status["addresses"] == [deployment.url]
    assert "ready" in deployment.ctl("status")
    ready = httpx.get(f"{deployment.url}/ready").json()
    assert (ready["status"], ready["model"]) == ("ready", "pup")
    assert httpx.get(f"{deployment.url}/health").json()["status"] == "ok"


def test_no_request_ends_the_replicas(deployment: Deployment) -> None:
    with deployment.client() as client:
        response = client.post("/admin/shutdown", json={})
    assert response.status_code == 501
    assert deployment.status()["status"] == "ready"


def test_limits_hold_across_replicas(deployment: Deployment, keys: KeyStore) -> None:
    limits = KeyLimits(requests_per_minute=5)
    key = keys.add("limited", lambda entry: structs.replace(entry, limits=limits))
    headers = {"Authorization": f"Bearer {key}"}
    responses = [
        httpx.post(
            f"{deployment.url}{CHAT}",
            json=chat([{"role": "user", "content": f"Flock {n} {LONG_TEXT}"}], 1),
            headers=headers,
        )
        for n in range(12)
    ]
    statuses = [response.status_code for response in responses]
    assert statuses == [200] * 5 + [429] * 7
    assert responses[0].headers["x-ratelimit-remaining-requests"] == "4"
    assert responses[-1].headers["x-ratelimit-remaining-requests"] == "0"


def test_a_background_response_is_found_on_its_replica(deployment: Deployment) -> None:
    body = {"input": "Count.", "background": True, "max_output_tokens": 16}
    with deployment.client() as client:
        created = client.post("/v1/responses", json=body).json()
        path = f"/v1/responses/{created['id']}"
        until(lambda: client.get(path).json()["status"] == "completed")
        following = {**body, "background": False, "previous_response_id": created["id"]}
        answers = [client.post("/v1/responses", json=following) for _ in range(3)]
        assert client.delete(path).json()["deleted"]
        assert client.get(path).status_code == 404
    assert [answer.status_code for answer in answers] == [200] * 3

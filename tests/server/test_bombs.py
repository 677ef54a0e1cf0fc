"""Grammars and schemas that would cost without end: refused or bounded, and nobody else waits."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import httpx
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import builtin_model
from tests.examples import some
from tests.patience import PATIENCE, POLL
from tests.server import bombs
from tests.server.harness import CHAT, HI, RunningServer

Engine = RunningServer[LlamaCppBackend]

GROWTH = 400
"""Megabytes that all of them together may leave behind."""


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    async def load() -> LlamaCppBackend:
        return await LlamaCppBackend.load(builtin_model(), LlamaCppSection(threads=1), parallel=4)

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), loop=loop) as running:
        yield running


def post(server: Engine, body: dict[str, Any]) -> httpx.Response:
    whole = {"model": "pup", "messages": HI, "max_tokens": 24, "temperature": 1.5, **body}
    return httpx.post(f"{server.url}{CHAT}", json=whole, timeout=2 * PATIENCE)


def megabytes() -> int:
    """The process's memory that is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 >> 20


@pytest.mark.long
def test_each_is_refused_or_answered_and_the_others_are_answered(server: Engine) -> None:
    asked = some(list(bombs.bodies()), "bombs", 6)
    post(server, {})
    before = megabytes()
    over = threading.Event()
    statuses: list[int] = []

    def keep_asking() -> None:
        while not over.is_set():
            statuses.append(post(server, {}).status_code)
            statuses.append(httpx.get(f"{server.url}/health", timeout=PATIENCE).status_code)
            over.wait(10 * POLL)

    others = threading.Thread(target=keep_asking)
    others.start()
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(post, repeat(server), (body for _, body in asked)))
    over.set()
    others.join()
    assert set(statuses) == {200}
    odd = {
        name: answer.text[:200]
        for (name, _), answer in zip(asked, answers, strict=True)
        if answer.status_code not in (200, 400)
    }
    assert odd == {}
    refused = [answer.json()["error"] for answer in answers if answer.status_code == 400]
    assert len(refused) > len(asked) / 4
    assert all(error["type"] == "invalid_request_error" and error["message"] for error in refused)
    assert megabytes() - before < GROWTH


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"grammar": 'root ::= "x" ("a"? ' + '"b"? ' * 2000 + ')* root | "y"'}, "places"),
        ({"grammar": 'root ::= "a"{0,100000}'}, "repetitions are limited to 2000"),
        ({"grammar": 'root ::= "' + "a" * 70_000 + '"'}, "longer than 65536 characters"),
        ({"grammar": bombs.grammars()["doubled letter"]}, "too big"),
    ],
)
def test_a_refusal_says_what_is_too_large(
    server: Engine, body: dict[str, Any], reason: str
) -> None:
    answer = post(server, body)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]

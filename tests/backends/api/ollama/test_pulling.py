"""A pull that breaks off and goes on, over real HTTP."""

import httpx
import pytest

from shepherd.backends.api.ollama_models import (
    MAX_ATTEMPTS,
    RESUMED,
    OllamaManager,
    pull_on,
)
from shepherd.catalog.hub import PullProgress
from shepherd.errors import InvalidRequestError, UnreachableError
from tests.backends.api.ollama.managed import STEPS
from tests.backends.api.upstream import Reply, Upstream
from tests.patience import PATIENCE


async def pulled(up: Upstream) -> list[PullProgress]:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        manager = OllamaManager(client, up.url)
        return [step async for step in pull_on(manager, "qwen3:8b", pause=0)]


def beginning(completed: int) -> Reply:
    """A pull that breaks off behind so many bytes."""
    return Reply.ndjson([*STEPS[:2], STEPS[1] | {"completed": completed}])


async def test_it_goes_on_as_long_as_more_comes() -> None:
    broken = [beginning(n) for n in range(1, 2 * MAX_ATTEMPTS)]
    async with Upstream([*broken, Reply.ndjson(STEPS)]) as up:
        steps = await pulled(up)
    assert steps[-1].status == "success"
    assert [step.status for step in steps].count(RESUMED) == len(broken)


async def test_it_ends_when_nothing_more_comes() -> None:
    async with Upstream([beginning(5) for _ in range(3 * MAX_ATTEMPTS)]) as up:
        with pytest.raises(UnreachableError, match="broken off"):
            await pulled(up)
        assert len(up.requests) == MAX_ATTEMPTS


async def test_what_fails_at_once_or_for_a_reason_is_not_tried_again() -> None:
    refused = Reply.ndjson([*STEPS[:2], {"error": "no space left\n on device"}])
    for reply, error, says in (
        (Reply("", status=503), UnreachableError, "status 503"),
        (refused, InvalidRequestError, "qwen3:8b: no space left on device$"),
    ):
        async with Upstream([reply]) as up:
            with pytest.raises(error, match=says):
                await pulled(up)
            assert len(up.requests) == 1

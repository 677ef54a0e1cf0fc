"""The models on an Ollama server, over real HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
from ollama import AsyncClient, ListResponse

from shepherd.backends.api.ollama_models import (
    LocalModel,
    ModelDetails,
    OllamaManager,
)
from shepherd.catalog.hub import PullProgress
from shepherd.errors import AccessError, InvalidRequestError, UnreachableError
from shepherd.messages import JsonObject
from tests.backends.api.upstream import Reply, Upstream
from tests.patience import PATIENCE

DETAILS = {"family": "qwen3", "parameter_size": "8.2B", "quantization_level": "Q4_K_M"}
TAGS: JsonObject = {
    "models": [
        {"name": "qwen3:8b", "model": "qwen3:8b", "size": 5_200_000_000, "details": DETAILS},
        {"name": "llama3:latest", "model": "llama3:latest"},
    ]
}
STEPS: list[JsonObject] = [
    {"status": "pulling manifest"},
    {"status": "pulling aa", "digest": "sha256:aa", "total": 200},
    {"status": "pulling aa", "digest": "sha256:aa", "total": 200, "completed": 150},
    {"status": "verifying sha256 digest"},
    {"status": "success"},
]


@asynccontextmanager
async def managing(
    *replies: Reply, key: str = ""
) -> AsyncGenerator[tuple[OllamaManager, Upstream], None]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with Upstream(replies) as up, httpx.AsyncClient(timeout=PATIENCE) as client:
        yield OllamaManager(client, up.url + "/", headers), up


async def pulled(manager: OllamaManager) -> list[PullProgress]:
    return [step async for step in manager.pull("qwen3:8b")]


async def test_models_are_listed_with_what_is_loaded() -> None:
    ListResponse.model_validate(TAGS)
    running = Reply({"models": [{"name": "qwen3:8b"}]})
    async with managing(running, Reply(TAGS), key="k") as (manager, up):
        models = await manager.list()
    assert models == [
        LocalModel("qwen3:8b", 5_200_000_000, "qwen3", "8.2B", "Q4_K_M", loaded=True),
        LocalModel("llama3:latest"),
    ]
    assert [request.path for request in up.requests] == ["/api/ps", "/api/tags"]
    assert all(request.headers["authorization"] == "Bearer k" for request in up.requests)


async def test_a_model_is_shown() -> None:
    info = {"general.architecture": "qwen3", "qwen3.context_length": 40960}
    body = {
        "model_info": info,
        "details": DETAILS,
        "parameters": "num_ctx 8192",
        "capabilities": ["completion", "tools", "thinking"],
        "template": "{{ .System }}<|im_start|>user\n{{ .Prompt }}<|im_end|>",
    }
    async with managing(Reply(body)) as (manager, up):
        model = await manager.show("qwen3:8b")
    assert model == ModelDetails(
        "qwen3:8b",
        "qwen3",
        "8.2B",
        "Q4_K_M",
        8192,
        40960,
        ("completion", "tools", "thinking"),
        "num_ctx 8192",
        "chatml",
    )
    assert up.requests[0].json == {"model": "qwen3:8b"}


async def test_a_pull_is_told_step_by_step_as_ollamas_own_client_tells_it() -> None:
    async with managing(Reply.ndjson(STEPS), Reply.ndjson(STEPS)) as (manager, up):
        ours = await pulled(manager)
        client = AsyncClient(up.url)
        theirs = [step async for step in await client.pull("qwen3:8b", stream=True)]
        await client.close()
    assert [(s.status, s.digest, s.completed, s.total) for s in ours] == [
        (s.status, s.digest or "", s.completed or 0, s.total or 0) for s in theirs
    ]
    sent = [(request.path, request.json) for request in up.requests]
    assert sent[0][0] == sent[1][0]
    assert sent[0][1] == {"model": "qwen3:8b", "stream": True}


async def test_a_pull_that_fails_says_why() -> None:
    failing = [*STEPS[:1], {"error": "pull model manifest: file does not exist"}]
    async with managing(Reply.ndjson(failing)) as (manager, _):
        with pytest.raises(InvalidRequestError, match="qwen3:8b: pull model manifest"):
            await pulled(manager)


@pytest.mark.parametrize(
    "reply", [Reply.ndjson(STEPS[:3]), Reply.ndjson(STEPS, cut_after=100), Reply("nonsense")]
)
async def test_a_pull_that_breaks_off_can_go_on(reply: Reply) -> None:
    async with managing(reply) as (manager, _):
        with pytest.raises(UnreachableError, match="broke"):
            await pulled(manager)


async def test_a_pull_that_is_left_closes_its_connection() -> None:
    never = asyncio.Event()
    async with managing(Reply([json.dumps(STEPS[0]) + "\n", never])) as (manager, up):
        steps = manager.pull("qwen3:8b")
        assert await anext(steps) == PullProgress("pulling manifest")
        await steps.aclose()
        await asyncio.wait_for(up.requests[0].hung_up.wait(), PATIENCE)


async def test_a_model_leaves_memory() -> None:
    async with managing(Reply({"done": True, "done_reason": "unload"})) as (manager, up):
        await manager.unload("qwen3:8b")
    request = up.requests[0]
    assert request.path == "/api/generate"
    assert request.json == {"model": "qwen3:8b", "keep_alive": 0, "stream": False}


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (
            Reply({"error": "model 'x' not found"}, 404),
            InvalidRequestError,
            "pull x --provider ollama",
        ),
        (Reply({"error": "unauthorized"}, 401), AccessError, "unauthorized"),
        (Reply("<html>", 502), UnreachableError, "<html>"),
        (Reply("", 400), InvalidRequestError, "status 400"),
        (Reply("<html>"), InvalidRequestError, "not an Ollama server"),
        (Reply("{}", cut_after=-1), UnreachableError, "broke off"),
    ],
)
async def test_refusals(reply: Reply, error: type[Exception], says: str) -> None:
    async with managing(reply) as (manager, up):
        with pytest.raises(error, match=says) as told:
            await manager.show("x")
    assert up.url in str(told.value) or "x" in str(told.value)


async def test_a_pull_that_fails_does_not_advise_to_pull() -> None:
    async with managing(Reply({"error": "no such model"}, 404)) as (manager, _):
        with pytest.raises(InvalidRequestError, match="can't pull qwen3:8b: no such") as told:
            await pulled(manager)
    assert "shepherd model pull" not in str(told.value)


async def test_a_refusal_without_a_key_says_so() -> None:
    for key, says in (("", "no key was sent"), ("k", "refuses the key")):
        async with managing(Reply({"error": "unauthorized"}, 401), key=key) as (manager, _):
            with pytest.raises(AccessError, match=says):
                await manager.show("x")


async def test_no_server_is_told_with_what_to_do() -> None:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        with pytest.raises(UnreachableError, match="ollama serve"):
            await OllamaManager(client, "http://127.0.0.1:1").list()

"""What the prefix cache saved, over HTTP."""

from pathlib import Path

import httpx
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.server.app import create_app

BODY = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


@pytest.mark.parametrize("turns", [1, 3])
async def test_stats_tell_what_each_tier_saved(turns: int, tmp_path: Path) -> None:
    backend = await LlamaCppBackend.load(
        builtin_model(), LlamaCppSection(threads=1), Sampling(temperature=0.0), cache=tmp_path / "c"
    )
    app = create_app(backend)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    async with client:
        cached = 0
        for _ in range(turns):
            usage = (await client.post("/v1/chat/completions", json=BODY)).json()["usage"]
            cached += usage["prompt_tokens_details"]["cached_tokens"]
        told = (await client.get("/stats")).json()
    await backend.aclose()
    assert told["model"] == backend.info.id
    memory, host, disk = told["cache"]
    assert [tier["name"] for tier in (memory, host, disk)] == ["memory", "host", "disk"]
    assert (memory["hits"], memory["tokens"]) == (turns - 1, cached)
    assert memory["entries"] == 1
    assert memory["bytes"] > 0
    assert host["entries"] == disk["entries"] == 0

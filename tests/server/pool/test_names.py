"""Which model a request's name means, over HTTP."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from shepherd.errors import AccessError, ConfigError
from shepherd.server.pool.catalog import SCAN_SECONDS, Catalog, MachineMemory
from shepherd.server.pool.pool import ModelPool
from tests.patience import PATIENCE
from tests.server.harness import HI, RunningServer, ask
from tests.server.pool.places import Home
from tests.upstreams.asking import provider

ALIASES = {
    "gpt-4o": "qwen",
    "smart": ["gone", "relay"],
    "pup2": "default",
    "claude-opus-*": "qwen",
    "claude-*": "default",
    "q*": "default",
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return furnished(tmp_path / "home")


def furnished(path: Path) -> Home:
    home = Home(path)
    for name in ("qwen", "team/tiny", "big-00001-of-00002"):
        home.add_model(name)
    (home.models / "damaged.gguf").write_bytes(b"GGUF")
    return home


@pytest.fixture
def server(home: Home) -> Iterator[RunningServer[ModelPool]]:
    with serving(home, aliases=ALIASES) as running:
        yield running


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningServer[ModelPool], Home]]:
    """A server for requests that change nothing, and its home."""
    home = furnished(tmp_path_factory.mktemp("shared") / "home")
    with serving(home, aliases=ALIASES) as running:
        yield running, home


def serving(home: Home, **settings: Any) -> RunningServer[ModelPool]:
    loop = asyncio.new_event_loop()
    pool = loop.run_until_complete(home.open(home.config(**settings)))
    return RunningServer(pool, loop=loop)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("pup", "pup"),
        ("default", "pup"),
        ("", "pup"),
        ("pup2", "pup"),
        ("qwen", "qwen"),
        ("qwen.gguf", "qwen"),
        ("gpt-4o", "qwen"),
        ("claude-opus-4-9", "qwen"),
        ("claude-haiku-9", "pup"),
        ("claude-*", "pup"),
        ("quick", "pup"),
        ("team/tiny", "tiny"),
        ("cloud", "cloud"),
        ("cloud/gpt-4o", "cloud"),
        ("cloud/openai/gpt-5:latest", "cloud/openai/gpt-5:latest"),
        ("relay", "relay"),
        ("smart", "relay"),
    ],
)
def test_names_of_models(
    server: RunningServer[ModelPool], home: Home, name: str, answer: str
) -> None:
    with server.client() as client:
        for _ in range(2):
            completion = ask(client, model=name)
            assert completion.choices[0].message.content == f"I am {answer}."
            assert completion.model == (name or "pup")
    assert home.opened == ["pup"] + [answer] * (answer != "pup")


def test_a_request_without_a_name_gets_the_default_model(server: RunningServer[ModelPool]) -> None:
    reply = httpx.post(
        f"{server.url}/v1/chat/completions", json={"messages": HI}, timeout=PATIENCE
    ).json()
    assert (reply["model"], reply["choices"][0]["message"]["content"]) == ("pup", "I am pup.")


@pytest.mark.parametrize(
    "name",
    [
        "gpt-5",
        "gone",
        "/etc/passwd",
        "../models/qwen",
        "script:/etc/passwd",
        "damaged-model",
        "cloud/../../admin",
        "cloud/a?b=c",
        "cloud/a#b",
        "cloud/ ",
        "cloud/" + "x" * 300,
        "disk//etc/passwd",
        "disk/other",
        "local",
        "shepherd",
        "big-00001-of-00002",
        "a\x00b",
    ],
)
def test_unknown_names_are_refused_in_the_shape_of_each_api(
    shared: tuple[RunningServer[ModelPool], Home], name: str
) -> None:
    server, home = shared
    opened = [*home.opened]
    with server.client() as client, pytest.raises(openai.NotFoundError) as refused:
        ask(client, model=name)
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
        body: dict[str, Any] = {"model": name, "messages": HI}
        anthropic = http.post("/v1/messages", json=body | {"max_tokens": 1})
        ollama = http.post("/api/chat", json=body)
        responses = http.post("/v1/responses", json={"model": name, "input": "hi"})
    for reply in (anthropic, ollama, responses):
        assert reply.status_code == 404, reply.text
    assert anthropic.json()["error"]["type"] == "not_found_error"
    assert isinstance(ollama.json()["error"], str)
    assert responses.json()["error"]["code"] == "model_not_found"
    assert home.opened == opened


def test_any_model_lets_the_default_answer_and_is_logged_once(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shepherd")
    with serving(home, any_model=True) as server, server.client() as client:
        for name in ("gpt-5", "gpt-5", "qwen"):
            ask(client, model=name)
    lines = [record.getMessage() for record in caplog.records if "gpt-5" in record.getMessage()]
    assert lines == ["The default model answers requests for the model 'gpt-5'"]
    assert home.opened == ["pup", "qwen"]


async def test_new_files_are_looked_for_every_few_seconds(home: Home) -> None:
    now, config = 100.0, home.config()
    memory = MachineMemory(config.llamacpp)
    catalog = Catalog(config, home.book, home.open_scripted, memory, lambda: now)
    await catalog.refresh()
    home.add_model("late")
    await catalog.refresh()
    assert "late" not in catalog.entries
    now += SCAN_SECONDS
    await catalog.refresh()
    assert "late" in catalog.entries


def test_the_list_has_all_models_and_loads_none(
    server: RunningServer[ModelPool], home: Home
) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
        models = {m["id"]: m for m in http.get("/v1/models").json()["data"]}
        assert next(iter(models)) == "pup"
        assert set(models) == {
            *("pup", "qwen", "team/tiny", "cloud/gpt-4o", "relay/claude-sonnet-4-5"),
            *("disk", "gpt-4o", "smart", "pup2"),
        }
        assert home.opened == ["pup"]
        assert models["pup"]["status"] == {"value": "loaded"}
        assert models["qwen"]["status"] == {"value": "unloaded"}
        assert models["qwen"]["max_model_len"] == 1024
        assert http.get("/stats").json()["loaded"] == ["pup", "pup2"]
        assert models["cloud/gpt-4o"]["owned_by"] == "cloud"
        assert "image" in models["cloud/gpt-4o"]["architecture"]["input_modalities"]
        assert http.get("/v1/models/team/tiny").json() == models["team/tiny"]
        assert http.get("/v1/models/default").json() == models["pup"]
        version = {"anthropic-version": "2023-06-01"}
        assert http.get("/v1/models/default", headers=version).json()["id"] == "pup"
        assert http.get("/v1beta/models/default").json()["name"] == "models/pup"
        assert http.post("/api/show", json={"model": "default:latest"}).status_code == 200
        assert http.get("/v1/models/gpt-5").status_code == 404
        for name, model in (("claude-x", "pup"), ("claude-opus-9", "qwen"), ("qwen", "qwen")):
            assert http.get(f"/v1/models/{name}").json() == {**models[model], "id": name}
            assert http.get(f"/v1/models/{name}", headers=version).json()["id"] == name
            assert http.post("/api/show", json={"model": name}).status_code == 200
        tags = {m["name"]: m["size"] for m in http.get("/api/tags").json()["models"]}
        assert tags["qwen"] == (home.models / "qwen.gguf").stat().st_size
        assert set(tags) == set(models)
        assert [m["name"] for m in http.get("/api/ps").json()["models"]] == ["pup", "pup2"]


def test_a_shepherd_in_front_uses_the_default_model(server: RunningServer[ModelPool]) -> None:
    async def name() -> str:
        backend = await provider("shepherd", f"{server.url}/v1")
        await backend.aclose()
        return backend.info.id

    assert server.do(name()) == "pup"


def test_a_model_that_can_not_be_opened_is_told(server: RunningServer[ModelPool]) -> None:
    with server.client() as client, pytest.raises(openai.InternalServerError) as failed:
        ask(client, model="disk")
    assert failed.value.status_code == 503
    assert failed.value.code == "model_not_loaded"


@pytest.mark.parametrize(
    ("error", "status"),
    [(ConfigError("no key"), 503), (AccessError("refused"), 500)],
)
def test_a_provider_that_can_not_be_opened_is_told(
    server: RunningServer[ModelPool], home: Home, error: Exception, status: int
) -> None:
    home.failures["cloud"] = error
    with server.client() as client, pytest.raises(openai.APIStatusError) as failed:
        ask(client, model="cloud")
    assert failed.value.status_code == status
    home.failures.clear()
    with server.client() as client:
        ask(client, model="cloud")


def test_ollama_keeps_models_as_long_as_a_request_says(
    server: RunningServer[ModelPool], home: Home
) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:

        def running() -> dict[str, str]:
            return {m["name"]: m["expires_at"] for m in http.get("/api/ps").json()["models"]}

        def load(model: str, keep_alive: object) -> httpx.Response:
            body = {"model": model, "keep_alive": keep_alive, "stream": False}
            return http.post("/api/generate", json=body)

        assert load("team/tiny", "10m").json()["done_reason"] == "load"
        assert not running()["team/tiny"].startswith("9999")
        load("team/tiny", -1)
        assert running()["team/tiny"].startswith("9999")
        load("team/tiny", 1e300)
        load("pup", 0)
        assert load("team/tiny", 0).json()["done_reason"] == "unload"
        server.until(lambda: not server.backend.default.status.cache_tiers)
        assert http.get("/health").status_code == 200
        assert "team/tiny" not in running()
        assert "pup" not in running()
        assert load("pup", None).status_code == 200
        assert "pup" in running()
        bad: list[object] = ["5 parsecs", True, [], "1" * 100]
        for value in bad:
            assert load("pup", value).status_code == 400
    assert home.opened == ["pup", "tiny", "pup"]

"""How large a model's context is, as Ollama tells it."""

import pytest
from ollama import ListResponse, ProcessResponse, ShowResponse

from shepherd.backends.api.adapter import ApiRequest, ModelEntry, ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.backends.api.ollama import MAX_DEFAULT_CONTEXT, OllamaAdapter
from shepherd.messages import JsonObject
from tests.backends.api.support import options
from tests.backends.api.upstream import Received, Reply, Upstream

ADAPTER = OllamaAdapter()
LOADED, SHOWN = ADAPTER.probes("qwen3")


def shown(info: JsonObject, parameters: str = "", *abilities: str) -> JsonObject:
    body: JsonObject = {"model_info": info, "parameters": parameters}
    body |= {"capabilities": [*abilities]} if abilities else {}
    ShowResponse.model_validate(body)
    return body


def test_what_is_asked() -> None:
    assert ApiRequest("/api/ps", None, "GET", stream=False) == LOADED
    assert ApiRequest("/api/show", {"model": "qwen3"}, stream=False) == SHOWN


def test_the_models_are_listed() -> None:
    body: JsonObject = {"models": [{"name": "a:latest", "model": "a:latest"}, {"model": "b:7b"}]}
    ListResponse.model_validate(body)
    assert ADAPTER.parse_models(body) == [ModelEntry("a:latest"), ModelEntry("b:7b")]
    assert ADAPTER.parse_models({"models": None}) == []


@pytest.mark.parametrize(
    ("name", "size"),
    [("qwen3", 4096), ("qwen3:latest", 4096), ("qwen3:8b", 16384), ("llama3", 0), ("hf.co/a/b", 1)],
)
def test_the_window_of_a_loaded_model(name: str, size: int) -> None:
    body: JsonObject = {
        "models": [
            {"name": "qwen3:latest", "model": "qwen3:latest", "context_length": 4096},
            {"name": "qwen3:8b", "model": "qwen3:8b", "context_length": 16384},
            {"name": "hf.co/a/b:latest", "context_length": 1},
            {"name": "llama3:latest"},
        ]
    }
    ProcessResponse.model_validate(body)
    entry = ADAPTER.parse_probe(LOADED, body, name)
    source = "the model in Ollama's memory"
    assert entry == (ModelEntry(name, size, source=source) if size else None)


def test_the_parameter_goes_before_the_training() -> None:
    info: JsonObject = {"general.architecture": "qwen3", "qwen3.context_length": 40960}
    body = shown(info, 'stop  "<|im_end|>"\nnum_ctx                        12288\ntop_k 20')
    entry = ADAPTER.parse_probe(SHOWN, body, "qwen3")
    assert entry == ModelEntry("qwen3", 12288, source="num_ctx in the model's parameters")


def test_a_trained_context_is_asked_for_as_far_as_machines_go() -> None:
    small = ADAPTER.parse_probe(SHOWN, shown({"gemma.context_length": 8192}), "m")
    assert small == ModelEntry("m", 8192, source="context_length of the model")
    info: JsonObject = {"general.architecture": "llama", "llama.context_length": 131072}
    info |= {"clip.vision.context_length": 999999}
    large = ADAPTER.parse_probe(SHOWN, shown(info), "m")
    assert large is not None
    assert large.context_size == MAX_DEFAULT_CONTEXT
    assert "131072" in large.source
    cloud = ADAPTER.parse_probe(SHOWN, shown(info) | {"remote_host": "https://ollama.com"}, "m")
    assert cloud is not None
    assert cloud.context_size == 131072


@pytest.mark.parametrize(("ability", "vision"), [("vision", True), ("tools", False)])
@pytest.mark.parametrize("info", [{}, {"gemma.context_length": 8192}])
def test_whether_it_sees_is_told_by_its_capabilities(
    info: JsonObject, ability: str, vision: object
) -> None:
    entry = ADAPTER.parse_probe(SHOWN, shown(info, "", "completion", ability), "m")
    assert entry is not None
    assert (entry.vision, entry.context_size) == (vision, info.get("gemma.context_length", 0))


@pytest.mark.parametrize(
    "body", [{}, {"error": "no"}, {"model_info": [], "parameters": 3}, shown({"a.b": 1})]
)
def test_nothing_is_known_from_what_says_nothing(body: JsonObject) -> None:
    assert ADAPTER.parse_probe(SHOWN, body, "m") is None
    assert ADAPTER.parse_probe(LOADED, body, "m") is None


@pytest.mark.parametrize("setting", [0, 8192])
@pytest.mark.parametrize(
    ("abilities", "known", "able"),
    [(("completion", "thinking"), False, True), (("completion",), True, False), ((), True, True)],
)
async def test_what_it_tells_goes_before_the_model_database(
    abilities: tuple[str, ...], setting: int, *, known: bool, able: bool
) -> None:
    told: JsonObject = {
        "capabilities": [*abilities],
        "model_info": {"qwen3.context_length": 40_960},
    }
    bodies: dict[str, JsonObject] = {
        "/api/tags": {"models": [{"model": "qwen3"}]},
        "/api/ps": {"models": []},
    }

    def answer(request: Received) -> Reply:
        return Reply({"/api/show": told, **bodies}[request.path])

    async with Upstream(answer) as up:
        backend = await ApiBackend.connect(
            Endpoint(up.url, name="local"),
            OllamaAdapter(),
            ModelTraits("qwen3", thinking=known, vision=known),
            context_size=setting,
            options=options(),
        )
        await backend.aclose()
    assert (backend.traits.thinking, backend.traits.vision) == (able, known and not abilities)

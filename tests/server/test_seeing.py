"""Images for a model of this process, on the wires of all APIs."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.native.bindings import reads_images
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.sampling import Sampling
from tests.backends.llamacpp import projectors, tiny
from tests.backends.llamacpp.projectors import IMAGE_TOKENS
from tests.patience import PATIENCE
from tests.pictures import picture
from tests.server.harness import RunningServer

pytestmark = pytest.mark.skipif(
    not reads_images(), reason="llama.cpp was built without images; see docs/images.md"
)

PHOTO = picture("", 40, 30)
OTHER = picture("", 40, 30, grey=9)
NAME = "seeing"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp(NAME)
    path = tiny.write_llama(folder / f"{NAME}.gguf", context=1024)
    projectors.write_gemma_projector(folder / "mmproj-f16.gguf")

    async def load() -> LlamaCppBackend:
        settings = LlamaCppSection(threads=1)
        return await LlamaCppBackend.load(path, settings, Sampling(temperature=0.0), name=NAME)

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), loop=loop) as running:
        yield running.url


class Wire(NamedTuple):
    """How an API is sent a question with an image, and where it counts tokens."""

    path: str
    body: Callable[[str], dict[str, Any]]
    counts: Callable[[Any], tuple[int, int | None]]
    """The tokens of the prompt and those from the cache; None if the API has no such number."""


def chat(image: str) -> dict[str, Any]:
    url = {"url": f"data:image/png;base64,{image}"}
    content = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": url}]
    return {
        "model": NAME,
        "max_tokens": 2,
        "messages": [{"role": "user", "content": content}],
    }


def responses(image: str) -> dict[str, Any]:
    content = [
        {"type": "input_text", "text": "What?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{image}"},
    ]
    return {
        "model": NAME,
        "max_output_tokens": 16,
        "input": [{"role": "user", "content": content}],
    }


def messages(image: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": image}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
    return {
        "model": NAME,
        "max_tokens": 2,
        "messages": [{"role": "user", "content": content}],
    }


def gemini(image: str) -> dict[str, Any]:
    data = {"inlineData": {"mimeType": "image/png", "data": image}}
    return {
        "contents": [{"role": "user", "parts": [data, {"text": "What?"}]}],
        "generationConfig": {"maxOutputTokens": 2},
    }


def ollama(image: str) -> dict[str, Any]:
    return {
        "model": NAME,
        "stream": False,
        "options": {"num_predict": 2},
        "messages": [{"role": "user", "content": "What?", "images": [image]}],
    }


def of_messages(answer: Any) -> tuple[int, int | None]:
    usage = answer["usage"]
    cached = usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    return usage["input_tokens"] + cached + written, cached


def of_gemini(answer: Any) -> tuple[int, int | None]:
    usage = answer["usageMetadata"]
    return usage["promptTokenCount"], usage.get("cachedContentTokenCount") or 0


def of_chat(answer: Any) -> tuple[int, int | None]:
    usage = answer["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def of_responses(answer: Any) -> tuple[int, int | None]:
    usage = answer["usage"]
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


def of_ollama(answer: Any) -> tuple[int, int | None]:
    return answer["prompt_eval_count"], None


WIRES = {
    "chat": Wire("/v1/chat/completions", chat, of_chat),
    "responses": Wire("/v1/responses", responses, of_responses),
    "messages": Wire("/v1/messages", messages, of_messages),
    "gemini": Wire(f"/v1beta/models/{NAME}:generateContent", gemini, of_gemini),
    "ollama": Wire("/api/chat", ollama, of_ollama),
}


def counts(url: str, wire: Wire, image: str) -> tuple[int, int | None]:
    answer = httpx.post(f"{url}{wire.path}", json=wire.body(image), timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return wire.counts(answer.json())


@pytest.mark.parametrize("name", list(WIRES))
def test_an_image_takes_its_tokens_once_on_every_wire(url: str, name: str) -> None:
    wire = WIRES[name]
    other, _ = counts(url, wire, OTHER.base64)
    first, _ = counts(url, wire, PHOTO.base64)
    again, cached = counts(url, wire, PHOTO.base64)
    assert other == first == again > IMAGE_TOKENS
    assert cached is None or again - cached < IMAGE_TOKENS


@pytest.mark.parametrize("name", list(WIRES))
def test_a_damaged_image_is_a_400_that_names_the_reason(url: str, name: str) -> None:
    wire = WIRES[name]
    damaged = picture("", 40, 30, grey=3).data[:-30]
    body = wire.body(type(PHOTO)("image/png", damaged).base64)
    answer = httpx.post(f"{url}{wire.path}", json=body, timeout=PATIENCE)
    assert answer.status_code == 400, answer.text
    assert "is damaged and can't be read" in answer.text


def test_the_lists_of_models_tell_that_it_sees(url: str) -> None:
    (listed,) = httpx.get(f"{url}/v1/models").json()["data"]
    assert listed["architecture"]["input_modalities"] == ["text", "image"]
    shown = httpx.post(f"{url}/api/show", json={"model": NAME}).json()
    assert "vision" in shown["capabilities"]


def raw(image: str, prompt: str = "a <__media__> b") -> dict[str, Any]:
    return {"prompt": {"prompt_string": prompt, "multimodal_data": [image]}, "n_predict": 2}


def test_the_facts_of_the_model_tell_that_it_sees(url: str) -> None:
    props = httpx.get(f"{url}/props", timeout=PATIENCE).json()
    assert props["modalities"] == {"vision": True, "audio": False}


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_a_raw_prompt_has_images_where_it_has_marks(url: str, path: str) -> None:
    answers = [
        httpx.post(f"{url}{path}", json=raw(image.base64), timeout=PATIENCE)
        for image in (OTHER, PHOTO, PHOTO)
    ]
    assert [answer.status_code for answer in answers] == [200] * 3, answers[-1].text
    plain = httpx.post(f"{url}/completion", json={"prompt": "a  b", "n_predict": 2}).json()
    if path == "/completion":
        last = answers[-1].json()
        assert last["tokens_evaluated"] > plain["tokens_evaluated"] + IMAGE_TOKENS
        assert last["tokens_evaluated"] - last["timings"]["cache_n"] < IMAGE_TOKENS


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/completion", raw(PHOTO.base64, "no mark"), "needs a <__media__>"),
        ("/completion", raw("%"), "is not valid base64"),
        ("/completion", {"prompt": {"prompt_string": "a", "multimodal_data": "x"}}, "a list of"),
        ("/v1/completions", raw(PHOTO.base64) | {"suffix": "b"}, "text only"),
        ("/v1/completions", raw(PHOTO.base64) | {"echo": True, "logprobs": 1}, "no log prob"),
    ],
)
def test_a_raw_prompt_with_wrong_images_is_a_400(
    url: str, path: str, body: dict[str, Any], reason: str
) -> None:
    answer = httpx.post(f"{url}{path}", json=body, timeout=PATIENCE)
    assert answer.status_code == 400, answer.text
    assert reason in answer.text

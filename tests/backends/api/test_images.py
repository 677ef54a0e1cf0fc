"""Images on every API's adapter, judged by the vendors' own types, over real HTTP."""

from base64 import b64decode
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from shepherd.backends.api.adapter import Adapter, ApiRequest, ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.backends.api.overflow import parse_overflow
from shepherd.backends.api.prompt import rejects_images, visible
from shepherd.backends.connect import adapter_for
from shepherd.errors import ImageError, InvalidRequestError
from shepherd.images import Image
from shepherd.messages import JsonObject, Message, ToolCall
from shepherd.session import Session
from tests.backends.api.anthropic.schema import check_request
from tests.backends.api.gemini.official import check_body as check_gemini
from tests.backends.api.ollama.official import check_body as check_ollama
from tests.backends.api.openai.official import valid_chat, valid_responses
from tests.backends.api.plain_adapter import PlainAdapter
from tests.backends.api.support import Events, backend_at, options
from tests.backends.api.upstream import Received, Reply, Upstream
from tests.pictures import gif, jpeg, picture, webp

PNG, JPEG = picture(), Image("image/jpeg", jpeg(), "b.jpg")
GIF, WEBP = Image("image/gif", gif(), "c.gif"), Image("image/webp", webp(), "d.webp")
CALL = ToolCall("call_1", "look", {})

HISTORY = [
    Message.user("What is this?", (PNG, JPEG)),
    Message.assistant("", tool_calls=(CALL,)),
    Message.tool(CALL, "a cat"),
    Message.assistant("A cat."),
    Message.user("", (WEBP,)),
]


class Api(NamedTuple):
    """A type of provider, how its requests are checked, and where the turns are in a body."""

    type: str
    model: str
    check: Callable[[ApiRequest], object]
    turns: str
    images: Callable[[Any], list[tuple[str, bytes]]]
    """The images in a turn of the user: their types, where the API is told them, and bytes."""

    def adapter(self) -> Adapter:
        return adapter_for(self.type, "", "", self.model)

    def first(self, sent: JsonObject) -> Any:
        return sent[self.turns][0]


def of_url(url: str) -> tuple[str, bytes]:
    head, _, data = url.partition(",")
    return head.removeprefix("data:").removesuffix(";base64"), b64decode(data, validate=True)


def chat_images(turn: Any) -> list[tuple[str, bytes]]:
    return [of_url(p["image_url"]["url"]) for p in turn["content"] if p["type"] == "image_url"]


def responses_images(turn: Any) -> list[tuple[str, bytes]]:
    return [of_url(p["image_url"]) for p in turn["content"] if p["type"] == "input_image"]


def anthropic_images(turn: Any) -> list[tuple[str, bytes]]:
    sources = [b["source"] for b in turn["content"] if b["type"] == "image"]
    return [(s["media_type"], b64decode(s["data"], validate=True)) for s in sources]


def gemini_images(turn: Any) -> list[tuple[str, bytes]]:
    found = [p["inlineData"] for p in turn["parts"] if "inlineData" in p]
    return [(d["mimeType"], b64decode(d["data"], validate=True)) for d in found]


def ollama_images(turn: Any) -> list[tuple[str, bytes]]:
    return [("", b64decode(data, validate=True)) for data in turn.get("images", [])]


def body(request: ApiRequest) -> JsonObject:
    assert request.body is not None
    return request.body


def check_chat(request: ApiRequest) -> object:
    return valid_chat(body(request))


def check_responses(request: ApiRequest) -> object:
    return valid_responses(body(request))


def check_contents(request: ApiRequest) -> object:
    return check_gemini(request.body)


def check_messages(request: ApiRequest) -> object:
    return check_ollama(request.body)


APIS = [
    Api("openai", "gpt-4o", check_chat, "messages", chat_images),
    Api("openai-responses", "gpt-5", check_responses, "input", responses_images),
    Api("anthropic", "claude-sonnet-4-5", check_request, "messages", anthropic_images),
    Api("gemini", "gemini-2.5-pro", check_contents, "contents", gemini_images),
    Api("ollama", "gemma3", check_messages, "messages", ollama_images),
]
apis = pytest.mark.parametrize("api", APIS, ids=lambda api: api.type)


@apis
async def test_the_very_bytes_arrive_before_the_text(api: Api) -> None:
    """The body that the API gets over HTTP is one that its own package could have sent."""
    async with Upstream() as up:
        backend = ApiBackend(
            Endpoint(up.url, name="acme"), api.adapter(), ModelTraits(api.model), options=options()
        )
        handle = await backend.prefill_session(Session(messages=list(HISTORY)), Events())
        with pytest.raises(InvalidRequestError):  # the script has no answer
            await backend.generate_from_prefilled(handle, Events())
        await backend.aclose()
    sent = up.requests[-1].json
    api.check(api.adapter().chat(Session(messages=list(HISTORY)), ModelTraits(api.model), 0))
    assert sent == body(
        api.adapter().chat(Session(messages=list(HISTORY)), ModelTraits(api.model), 0)
    )
    first = api.images(api.first(sent))
    assert [data for _, data in first] == [PNG.data, JPEG.data]
    assert {kind for kind, _ in first} in ({"image/png", "image/jpeg"}, {""})
    told = str(api.first(sent))
    assert api.type == "ollama" or told.index(PNG.base64) < told.index("What is this?")


@apis
def test_without_images_nothing_has_changed(api: Api) -> None:
    """Plain text stays plain text: for servers that know nothing else, and for their caches."""
    session = Session(messages=[Message.user("hi")])
    first = api.first(body(api.adapter().chat(session, ModelTraits(api.model, vision=True), 0)))
    mark = {"type": "ephemeral"}
    expected: dict[str, Any] = {
        "anthropic": {
            "role": "user",
            "content": [{"type": "text", "text": "hi", "cache_control": mark}],
        },
        "openai": {"role": "user", "content": "hi"},
        "openai-responses": {"type": "message", "role": "user", "content": "hi"},
        "gemini": {"role": "user", "parts": [{"text": "hi"}]},
        "ollama": {"role": "user", "content": "hi"},
    }
    assert first == expected[api.type]


def test_a_mark_of_the_cache_stands_at_the_end_of_an_image_alone() -> None:
    sent = body(APIS[2].adapter().chat(Session(messages=list(HISTORY)), ModelTraits("claude"), 0))
    last = sent["messages"][-1]["content"]
    assert [block["type"] for block in last] == ["image"]
    assert last[-1]["cache_control"] == {"type": "ephemeral"}


async def test_a_model_that_is_known_not_to_see_is_not_asked() -> None:
    async with Upstream() as up:
        backend = backend_at(up, vision=False)
        assert backend.info.vision is False
        with pytest.raises(ImageError, match=r"m1 can't see images.*provider add"):
            await backend.prefill_session(Session(messages=[Message.user("?", (PNG,))]), Events())
        await backend.aclose()
    assert up.requests == []


async def test_what_others_were_shown_becomes_text() -> None:
    session = Session(messages=[*HISTORY[:4], Message.user("And now?")])
    async with Upstream([Reply.sse([{"text": "Hm."}, {"stop": "stop"}])] * 2) as up:
        backend = backend_at(up, vision=False)
        counted = await backend.count_session_tokens(session)
        answer = await backend.generate_from_session(session, Events())
        await backend.aclose()
    assert answer.message.content == "Hm."
    label = "[image photo.png, 3×2]\n[image b.jpg, 3×2]\nWhat is this?"
    assert up.requests[0].json["messages"][0]["content"] == label
    assert counted < 100
    assert session.messages[0].images == (PNG, JPEG)


@pytest.mark.parametrize("status", [400, 500])
async def test_a_model_nobody_knows_says_itself_that_it_can_not_see(status: int) -> None:
    """Then it is asked again without the images that others were shown, and no more after that."""
    refusal = Reply({"error": {"message": "m1 is not a multimodal model"}}, status=status)
    answer = Reply.sse([{"text": "Hm."}, {"stop": "stop"}])
    async with Upstream([refusal, answer, refusal]) as up:
        backend = backend_at(up)
        session = Session(messages=[*HISTORY[:4], Message.user("And now?")])
        got = await backend.generate_from_session(session, Events())
        assert (got.message.content, backend.info.vision) == ("Hm.", False)
        assert "[image photo.png" in up.requests[1].json["messages"][0]["content"]
        shown = Session(messages=[Message.user("?", (PNG,))])
        with pytest.raises(ImageError, match="can't see"):
            await backend.generate_from_session(shown, Events())
        await backend.aclose()
        other = backend_at(up)
        with pytest.raises(ImageError, match="can't see"):
            await other.generate_from_session(shown, Events())
        await other.aclose()
    assert len(up.requests) == 3


@pytest.mark.parametrize(
    "api", [a for a in APIS if a.type in ("gemini", "ollama")], ids=lambda api: api.type
)
async def test_a_format_that_the_api_can_not_read_is_told(api: Api) -> None:
    backend = ApiBackend(Endpoint("http://127.0.0.1:1"), api.adapter(), ModelTraits(api.model))
    with pytest.raises(ImageError, match=r"c\.gif is a GIF.*send a PNG"):
        await backend.prefill_session(Session(messages=[Message.user("?", (GIF,))]), Events())
    await backend.aclose()
    earlier = [Message.user("?", (GIF, PNG)), Message.assistant("!"), Message.user("so?")]
    kept = visible(Session(messages=earlier), ModelTraits("m"), api.adapter().image_types).messages[
        0
    ]
    assert (kept.content, kept.images) == ("[image c.gif, 3×2]\n?", (PNG,))


@pytest.mark.parametrize(
    "text",
    [
        "Invalid content type. image_url is only supported by certain models.",
        "image input is not supported - hint: you may need to provide the mmproj",
        "meta/llama is not a multimodal model",
        "No endpoints found that support image input",
        "messages[0]: unknown variant `image_url`, expected `text`",
        "this model is missing data required for image input",
        "This model does not support images",
        "At most 0 image(s) may be provided in one request.",
        "Model does not support vision",
    ],
)
def test_who_can_not_see_is_understood(text: str) -> None:
    assert rejects_images(text)
    assert parse_overflow({"error": {"message": text}}) is None


@pytest.mark.parametrize(
    "text",
    [
        "image exceeds 5 MB maximum: 7153264 bytes > 5242880 bytes",
        "You uploaded an unsupported image. Please make sure your image is valid.",
        "media_type: image/bmp is not supported",
        "Unsupported MIME type: image/gif",
        "Could not process image",
        "Your request exceeds the limit of 5 images",
        "image dimensions exceed max allowed size: 8000 pixels",
    ],
)
def test_an_image_that_is_wrong_does_not_make_blind(text: str) -> None:
    assert not rejects_images(text)
    assert parse_overflow({"error": {"message": text}}) is None


@pytest.mark.parametrize(
    ("type_", "answers", "vision"),
    [
        ("openai", {"/v1/models": {"data": [{"id": "m", "capabilities": {"vision": True}}]}}, True),
        (
            "openai",
            {"/v1/models": {"data": [{"id": "m", "architecture": {"input_modalities": ["text"]}}]}},
            False,
        ),
        (
            "openai",
            {
                "/v1/models": {"data": [{"id": "m"}]},
                "/props": {
                    "default_generation_settings": {"n_ctx": 4096},
                    "modalities": {"vision": False, "audio": False},
                },
            },
            False,
        ),
        ("openai", {"/v1/models": {"data": [{"id": "m"}]}}, None),
        (
            "ollama",
            {
                "/api/tags": {"models": [{"name": "m", "model": "m"}]},
                "/api/ps": {"models": [{"name": "m:latest", "context_length": 4096}]},
                "/api/show": {"capabilities": ["completion", "vision"], "model_info": {}},
            },
            True,
        ),
        (
            "anthropic",
            {
                "/v1/models": {"data": [{"id": "m"}]},
                "/v1/models/m": {
                    "id": "m",
                    "max_input_tokens": 9000,
                    "capabilities": {"image_input": {"supported": True}},
                },
            },
            True,
        ),
    ],
)
async def test_the_server_says_whether_its_model_sees(
    type_: str, answers: dict[str, JsonObject], vision: object
) -> None:
    def answer(request: Received) -> Reply:
        found = answers.get(request.path)
        return Reply("", 404) if found is None else Reply(found)

    async with Upstream(answer) as up:
        base = f"{up.url}/v1" if type_ == "openai" else up.url
        for known in (None, not vision):
            backend = await ApiBackend.connect(
                Endpoint(base, name="acme"),
                adapter_for(type_, base, "", "m"),
                ModelTraits("m", vision=known),
                options=options(),
            )
            await backend.aclose()
            assert backend.info.vision is (known if vision is None else vision)


async def test_the_probe_that_knows_the_context_need_not_know_who_sees() -> None:
    async with Upstream([Reply({"models": [{"id": "m1", "size": 4096}]})]) as up:
        backend = await ApiBackend.connect(
            Endpoint(up.url, name="acme"), PlainAdapter(), ModelTraits("m1"), options=options()
        )
        await backend.aclose()
    assert (backend.info.context_size, backend.info.vision) == (4096, None)

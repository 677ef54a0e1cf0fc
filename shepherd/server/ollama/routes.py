"""The paths of the Ollama API: chat, generate, and what there is of models."""

import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from shepherd import json_text, messages
from shepherd.backends.base import ModelInfo, ModelKind
from shepherd.backends.embedding import EmbeddingInput, Embeddings
from shepherd.server.api import Api
from shepherd.server.errors import ApiError, to_api_error, unsupported
from shepherd.server.models import ModelState, ServedModel, find_model
from shepherd.server.ollama import answers, requests
from shepherd.server.record import current_key
from shepherd.server.responses import JSON_LINES, EventStreamResponse, JsonResponse, StreamFormat
from shepherd.server.serving import Exchange, Serving, serves
from shepherd.server.settings import ServerContext, ServerSettings
from shepherd.server.wire.embedding import embedded, json_array

VERSION = "0.13.0"
"""The version of Ollama whose API this is; clients refuse to talk to old ones."""

_NEVER = "9999-12-31T23:59:59Z"
_MAX_TIME = 253_402_300_799
"""The last second that a date can have, at the end of the year 9999."""

_FAMILY = "shepherd"


def chat_router(context: ServerContext) -> APIRouter:
    """The routes that generate."""
    router, bodies = APIRouter(prefix="/api"), context.bodies

    @router.post("/chat")
    async def chat(
        body: Annotated[requests.ChatRequest, bodies.of(requests.ChatRequest, any_type=True)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue a conversation, in lines of JSON unless `stream` is false.

        If the assistant has the last word, the answer continues it. An error after the first line
        is the last line. Hanging up stops the work.
        """
        started = time.perf_counter()
        if not body.messages:
            return await _load(context, body, answers.OllamaAnswer(body.model, is_chat=True))
        name = requests.plain_name(body.model, context.models)
        model = await serving.lease(name, body.keep_alive)
        exchange = await serving.translate(
            body.messages, _chat_exchange, body, context.settings, started, model.info
        )
        return await serving.respond(model, exchange, _stream_format(body))

    @router.post("/generate")
    async def generate(
        body: Annotated[
            requests.GenerateRequest, bodies.of(requests.GenerateRequest, any_type=True)
        ],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Answer a prompt, in lines of JSON unless `stream` is false."""
        started = time.perf_counter()
        if not (body.prompt or body.images or body.suffix):
            return await _load(context, body, answers.OllamaAnswer(body.model, is_chat=False))
        name = requests.plain_name(body.model, context.models)
        model = await serving.lease(name, body.keep_alive)
        exchange = _generate_exchange(body, context.settings, started, model.info)
        return await serving.respond(model, exchange, _stream_format(body))

    return router


def models_router(context: ServerContext) -> APIRouter:
    """The routes that tell which models there are."""
    router, bodies = APIRouter(prefix="/api"), context.bodies

    @router.get("/tags")
    async def list_models() -> JsonResponse:
        """The models on offer. The digest is that of the name; unknown sizes are 0."""
        await context.models.refresh()
        times = {"modified_at": _time(context.started)}  # when the server found them
        models = [_listed_model(model) | times for model in context.models.served()]
        return JsonResponse({"models": models})

    @router.get("/ps")
    async def list_running_models() -> JsonResponse:
        """The models that are loaded."""
        served = context.models.served()
        loaded = [_running_model(m) for m in served if m.state is ModelState.LOADED]
        return JsonResponse({"models": loaded})

    @router.post("/show")
    async def show_model(
        body: Annotated[requests.ShowRequest, bodies.of(requests.ShowRequest, any_type=True)],
    ) -> JsonResponse:
        """What the server knows of a model; 404 for an unknown name."""
        await context.models.refresh()
        model = await find_model(requests.plain_name(body.model, context.models), context.models)
        if model is None:
            raise ApiError(404, f"model '{body.model}' not found", "model_not_found", "model")
        return JsonResponse(_model_details(model.info, context.started))

    @router.get("/version")
    async def show_version() -> JsonResponse:
        """The version of Ollama whose API this is."""
        return JsonResponse({"version": VERSION})

    return router


def pull_router(context: ServerContext) -> APIRouter:
    """The route that downloads models."""
    router, bodies = APIRouter(prefix="/api"), context.bodies

    @router.post("/pull")
    async def pull_model(
        body: Annotated[requests.PullRequest, bodies.of(requests.PullRequest, any_type=True)],
    ) -> Response:
        """Download a model from Hugging Face, in lines of JSON unless `stream` is false.

        Needs a key with the scope `admin`, without keys the setting `server.pull`. Hanging up stops
        the download; the next one goes on from there.
        """
        directory = context.settings.models_dir
        if directory is None or not (context.settings.pull or current_key() is not None):
            message = "This server downloads no models for clients (server.pull)."
            raise ApiError(403, message, "pull_not_allowed")
        steps = context.downloads.steps(body.model.removesuffix(":latest"), directory)

        async def lines() -> AsyncGenerator[str]:
            async for step in steps:
                yield answers.line({key: value for key, value in asdict(step).items() if value})
            yield answers.line({"status": "success"})

        if body.stream is False:
            async with aclosing(lines()) as texts:
                last = [line async for line in texts][-1]
            return Response(last, media_type="application/json")
        keepalive = context.settings.keepalive
        return EventStreamResponse(lambda: aclosing(lines()), to_api_error, keepalive, JSON_LINES)

    return router


def refusal_router() -> APIRouter:
    """The other routes that change models, all refused."""
    router = APIRouter(prefix="/api", include_in_schema=False)

    @router.api_route("/push", methods=["POST"])
    @router.api_route("/create", methods=["POST"])
    @router.api_route("/copy", methods=["POST"])
    @router.api_route("/delete", methods=["DELETE"])
    @router.api_route("/blobs/{digest}", methods=["GET", "POST"])
    async def refuse(request: Request) -> Response:
        """Refuse to change models."""
        action = request.url.path.removeprefix("/api/").partition("/")[0]
        message = (
            f"{action} is not served: this server's models are set where it is started "
            "(see `shepherd models`)."
        )
        raise unsupported("model", message)

    return router


async def _load(
    context: ServerContext, body: requests.OllamaRequest, answer: answers.OllamaAnswer
) -> JsonResponse:
    """Load the model and generate nothing."""
    name = requests.plain_name(body.model, context.models)
    async with context.models.lease(name, body.keep_alive):
        return JsonResponse(answer.without_text("unload" if body.keep_alive == 0 else "load"))


def _stream_format(body: requests.OllamaRequest) -> StreamFormat | None:
    """Answers are streamed unless the request says otherwise."""
    return None if body.stream is False else JSON_LINES


def _chat_exchange(
    body: requests.ChatRequest, settings: ServerSettings, started: float, model: ModelInfo
) -> Exchange:
    """The exchange of a chat request; raises ApiError."""
    session = requests.chat_session(body, model, thinking=settings.thinking)
    answer = answers.OllamaAnswer(
        body.model, is_chat=True, thinking=session.thinking, started=started
    )
    return Exchange(
        session,
        answer,
        max_tokens=body.token_limit(settings.max_tokens),
        on_evicted=answer.evicted.extend if body.truncate else None,
    )


def _generate_exchange(
    body: requests.GenerateRequest, settings: ServerSettings, started: float, model: ModelInfo
) -> Exchange:
    """The exchange of a generate request; raises ApiError."""
    session = requests.generate_session(body, model, thinking=settings.thinking)
    answer = answers.OllamaAnswer(
        body.model, is_chat=False, thinking=session.thinking, started=started
    )
    return Exchange(session, answer, max_tokens=body.token_limit(settings.max_tokens))


def _running_model(model: ServedModel) -> messages.JsonObject:
    """The entry of `/api/ps`: a model without a time to expire stays loaded.

    `size` is the memory that it takes, else that of its file, and `size_vram` that of GPUs.
    """
    memory = model.memory
    return _listed_model(model) | {
        "expires_at": _NEVER if model.expires is None else _time(min(model.expires, _MAX_TIME)),
        "size": (memory.ram + memory.vram) or model.size,
        "size_vram": memory.vram,
        "context_length": model.info.context_size,
    }


def _model_details(info: ModelInfo, started: int) -> messages.JsonObject:
    """The answer of `/api/show`; what the server does not know of a model is empty.

    Every model of texts takes tools and `think`; one that can't reason answers without.
    """
    size = {f"{_FAMILY}.context_length": info.context_size} if info.context_size else {}
    capabilities: list[str] = [info.kind]
    if info.kind is ModelKind.TEXT:
        capabilities += ["tools", "thinking", *(["vision"] if info.vision else [])]
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "license": "",
        "details": _details(info),
        "model_info": {"general.architecture": _FAMILY, "general.basename": info.id, **size},
        "capabilities": capabilities,
        "modified_at": _time(started),
    }


def _listed_model(model: ServedModel) -> messages.JsonObject:
    """The fields that both lists of models have: the name twice, a digest of it, and so on."""
    name = model.info.id
    return {
        "name": name,
        "model": name,
        "size": model.size,
        "digest": hashlib.sha256(name.encode("utf-8", "replace")).hexdigest(),
        "details": _details(model.info),
    }


def _details(info: ModelInfo) -> messages.JsonObject:
    """What Ollama tells of a model's file; what the server does not know is empty."""
    return {
        "parent_model": "",
        "format": "gguf" if info.backend == "llamacpp" else info.backend,
        "family": _FAMILY,
        "families": [_FAMILY],
        "parameter_size": "",
        "quantization_level": "",
    }


def _time(seconds: float) -> str:
    """A Unix time as Ollama writes it: `2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def embed_router(context: ServerContext) -> APIRouter:
    """The routes that make vectors."""
    router = APIRouter(prefix="/api")

    @router.post("/embed")
    async def embed(
        request: Request, body: Annotated[requests.EmbedBody, context.bodies.of(requests.EmbedBody)]
    ) -> Response:
        """Make a vector of each text. Without texts the model is only loaded."""
        started = time.perf_counter()
        texts = [(text,) for text in body.input]  # an input may have more parts than a text
        truncates = body.truncate is not False
        inputs = EmbeddingInput(texts, body.dimensions or 0, truncates)
        result = await _embedded(context, request, body.model, inputs, "input")
        answer: messages.JsonObject = {
            "model": body.model,
            "total_duration": answers.nanoseconds(time.perf_counter() - started),
            "load_duration": 0,
            "prompt_eval_count": result.tokens,
        }
        text = await context.bodies.run(_with_vectors, answer, result)
        return Response(text, media_type="application/json")

    @router.post("/embeddings")
    async def embed_prompt(
        request: Request,
        body: Annotated[requests.EmbeddingsBody, context.bodies.of(requests.EmbeddingsBody)],
    ) -> Response:
        """Make a vector of one text: the older form."""
        texts = [(body.prompt,)] if body.prompt else []
        inputs = EmbeddingInput(texts, truncate=True)
        result = await _embedded(context, request, body.model, inputs, "prompt")
        vectors = list(map(list, result.vectors))  # none without a text: the model is only loaded
        return JsonResponse({"embedding": vectors[0] if vectors else []})

    return router


def _with_vectors(answer: messages.JsonObject, result: Embeddings) -> str:
    """The JSON of an answer with its vectors, which are many numbers."""
    without_brace = json_text.to_json(answer)[:-1]
    return f'{without_brace},"embeddings":{json_array(map(list, result.vectors))}}}'


async def _embedded(
    context: ServerContext, request: Request, model: str, inputs: EmbeddingInput, param: str
) -> Embeddings:
    """The vectors of inputs, which are the field `param` of the request; raises ApiError."""
    name = requests.plain_name(model, context.models)
    result, _ = await embedded(context, request, name, inputs, param)
    return result


OLLAMA = Api(
    name="ollama",
    paths=("/api",),
    errors=answers.OllamaErrors(),
    routers=lambda context: (
        chat_router(context),
        embed_router(context),
        models_router(context),
        pull_router(context),
        refusal_router(),
    ),
)

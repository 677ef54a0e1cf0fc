"""The paths of the Gemini API: generate, count, list models."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from shepherd import json_text, messages
from shepherd.backends.base import ModelInfo, ModelKind
from shepherd.backends.embedding import EmbeddingInput, Embeddings
from shepherd.server.api import Api, routes_with
from shepherd.server.errors import ApiError, invalid
from shepherd.server.gemini import answers, requests
from shepherd.server.gemini.to_session import session_from_request
from shepherd.server.models import find_model
from shepherd.server.record import record_of
from shepherd.server.responses import JSON_ARRAY, JsonResponse, StreamFormat
from shepherd.server.serving import Exchange, Serving, serves
from shepherd.server.settings import ServerContext
from shepherd.server.wire import embedding, fields

CLIENT_HEADER = "x-goog-api-client"
"""All of Google's clients send it; on paths that OpenAI has too, it tells them apart."""

EVENTS = StreamFormat("text/event-stream", keepalive="\n")
"""Server-sent events without comments: Google's client in JavaScript, and with it gemini-cli, fails
with "Incomplete JSON segment" at a comment, and skips empty lines."""

_COUNT = "generationConfig.candidateCount"
_METHODS = {
    ModelKind.TEXT: ("generateContent", "countTokens"),
    ModelKind.EMBEDDING: ("embedContent", "batchEmbedContents"),
    ModelKind.RERANKING: (),
}
_PREFIX = "models/"


def methods_router(context: ServerContext, version: str) -> APIRouter:
    """The routes that generate and count, for one version of the API."""
    router = APIRouter(prefix=f"{version}/models")

    @router.post("/{model:path}:generateContent")
    async def generate_content(
        model: str,
        body: Annotated[requests.GenerateRequest, context.bodies.of(requests.GenerateRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue a conversation; the answer comes whole."""
        backend = await serving.lease(model.removeprefix(_PREFIX))
        exchange = await serving.translate(body.contents, _exchange, body, context, backend.info)
        return await serving.respond(backend, exchange)

    @router.post("/{model:path}:streamGenerateContent")
    async def stream_generate_content(
        request: Request,
        model: str,
        body: Annotated[requests.GenerateRequest, context.bodies.of(requests.GenerateRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue a conversation in pieces.

        With `alt=sse` they are server-sent events, otherwise the elements of one array. The prompt
        is processed before the first header is sent, so a conversation that does not fit is a 400.
        Hanging up stops the work.
        """
        array = _wants_array(request)
        if array:
            record_of(request.scope).shape = answers.GeminiArrayErrors()
        backend = await serving.lease(model.removeprefix(_PREFIX))
        exchange = await serving.translate(
            body.contents, _exchange, body, context, backend.info, array=array
        )
        return await serving.respond(backend, exchange, JSON_ARRAY if array else EVENTS)

    @router.post("/{model:path}:countTokens")
    async def count_tokens(
        model: str,
        body: Annotated[requests.CountRequest, context.bodies.of(requests.CountRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> JsonResponse:
        """How many tokens the prompt of a request takes, with its instructions and functions."""
        prompt = body.generate_content_request or _prompt(body)
        backend = await serving.lease(model.removeprefix(_PREFIX))
        exchange = await serving.translate(
            prompt.contents, _exchange, prompt, context, backend.info
        )
        tokens = await serving.count_tokens(backend, exchange)
        details = [{"modality": "TEXT", "tokenCount": tokens}]
        return JsonResponse({"totalTokens": tokens, "promptTokensDetails": details})

    return router


def vectors_router(context: ServerContext, version: str) -> APIRouter:
    """The routes that make vectors, for one version of the API."""
    router = APIRouter(prefix=f"{version}/models")

    @router.post("/{model:path}:embedContent")
    async def embed_content(
        request: Request,
        model: str,
        body: Annotated[requests.EmbedContentBody, context.bodies.of(requests.EmbedContentBody)],
    ) -> Response:
        """Make a vector of a text."""
        result = await _embedded(context, request, model, [body])
        vector: list[Any] = [*result.vectors[0]]
        return JsonResponse({"embedding": {"values": vector}, "usageMetadata": _usage(result)})

    @router.post("/{model:path}:batchEmbedContents")
    async def batch_embed_contents(
        request: Request,
        model: str,
        body: Annotated[requests.BatchEmbedBody, context.bodies.of(requests.BatchEmbedBody)],
    ) -> Response:
        """Make a vector of each text."""
        if not body.requests:
            return JsonResponse({"embeddings": []})
        result = await _embedded(context, request, model, body.requests)
        text = await context.bodies.run(lambda: _batch_text(result))
        return Response(text, media_type="application/json")

    return router


def models_router(
    context: ServerContext, version: str, route_class: type[APIRoute] = APIRoute
) -> APIRouter:
    """The routes that list the models, for one version of the API."""
    in_schema = version == BETA  # in the other version, the path is that of OpenAI's list
    router = APIRouter(
        prefix=f"{version}/models", route_class=route_class, include_in_schema=in_schema
    )

    @router.get("")
    async def list_models() -> JsonResponse:
        """The models on offer, all on one page."""
        await context.models.refresh()
        models = [_model(info) for info in context.models.listed()]
        return JsonResponse({"models": models})

    @router.get("/{model:path}")
    async def get_model(model: str) -> JsonResponse:
        """The model of that name; 404 for any other."""
        name = model.removeprefix(_PREFIX)
        served = await find_model(name, context.models)
        if served is None:
            message = f"models/{name} is not found; {version}/models lists this server's."
            raise ApiError(404, message, "model_not_found")
        return JsonResponse(_model(served.info))

    @router.post("/{model:path}:{method}", include_in_schema=False)
    async def call_method(method: str) -> JsonResponse:
        """Refuse methods that are not served."""
        message = f"The method {method[:40]!r} is not served; see supportedGenerationMethods."
        raise ApiError(404, message, "not_found")

    return router


def _exchange(
    body: requests.GenerateRequest, context: ServerContext, model: ModelInfo, *, array: bool = False
) -> Exchange:
    """The exchange of a request; raises ApiError."""
    settings, config = context.settings, body.generation
    session = session_from_request(body, model, context.seal, thinking=settings.thinking)
    thinking = config.thinking_config
    answer = answers.GeminiAnswer(
        model=model.id,
        seal=context.seal,
        thoughts=session.thinking and bool(thinking and thinking.include_thoughts),
        array=array,
    )
    limit = fields.token_limit(config.max_output_tokens, settings.max_tokens)
    calling = body.tool_config.function_calling_config if body.tool_config else None
    return Exchange(
        session,
        answer,
        count=fields.choice_count(config.candidate_count, settings.max_choices, _COUNT),
        max_tokens=limit,
        tools_allowed=calling is None or calling.mode != "NONE",
        count_field=_COUNT,
        left_out=[name for tool in body.tools for name in tool.left_out()],
    )


def _wants_array(request: Request) -> bool:
    """Whether a stream is an array; raises ApiError for a format that is not served."""
    alt = request.query_params.get("alt") or request.query_params.get("$alt") or "json"
    if alt not in ("json", "sse"):
        raise invalid("alt", f"must be sse or json, got {alt[:40]!r}")
    return alt == "json"


def _prompt(body: requests.CountRequest) -> requests.GenerateRequest:
    """The prompt in the fields of a request to count, which were checked with it."""
    if body.contents is None:
        raise ApiError(400, "contents is missing", "missing_required_parameter", "contents")
    return requests.GenerateRequest.model_construct(
        contents=body.contents, system_instruction=body.system_instruction, tools=body.tools
    )


def _model(info: ModelInfo) -> messages.JsonObject:
    """A model as Google lists it; one whose context is not known (0) has no limits."""
    limits = {"inputTokenLimit": info.context_size, "outputTokenLimit": info.context_size}
    return {
        "name": f"{_PREFIX}{info.id}",
        "baseModelId": info.id,
        "version": info.id,
        "displayName": info.id,
        "description": f"Served by {info.owned_by}.",
        **(limits if info.context_size else {}),
        "supportedGenerationMethods": [*_METHODS[info.kind]],
        "thinking": info.kind is ModelKind.TEXT,
    }


async def _embedded(
    context: ServerContext,
    request: Request,
    model: str,
    bodies: Sequence[requests.EmbedContentBody],
) -> Embeddings:
    """The vectors of texts, made in one go; raises ApiError for texts that need different ones."""
    name = model.removeprefix(_PREFIX)
    if any((body.model or name).removeprefix(_PREFIX) != name for body in bodies):
        raise _differs("model")
    options = {(body.output_dimensionality or 0, bool(body.auto_truncate)) for body in bodies}
    if len(options) > 1:
        raise _differs("outputDimensionality")
    ((dimensions, truncate),) = options
    inputs = EmbeddingInput([(body.text(),) for body in bodies], dimensions, truncate)
    result, _ = await embedding.embedded(context, request, name, inputs, "content")
    return result


def _differs(param: str) -> ApiError:
    """The error for a batch whose requests have different values of a field."""
    message = f"requests: {param} must be the same in all of them, and in the path"
    return ApiError(400, message, "invalid_value", param)


def _usage(result: Embeddings) -> messages.JsonObject:
    """The usage of a request for vectors, which generates nothing."""
    return {"promptTokenCount": result.tokens, "totalTokenCount": result.tokens}


def _batch_text(result: Embeddings) -> str:
    """The JSON of an answer with the vectors of many texts."""
    vectors = ({"values": [*vector]} for vector in result.vectors)
    usage = json_text.to_json(_usage(result))
    return f'{{"embeddings":{embedding.json_array(vectors)},"usageMetadata":{usage}}}'


BETA = "/v1beta"
STABLE = "/v1"
GEMINI = Api(
    name="gemini",
    paths=(BETA,),
    errors=answers.GeminiErrors(),
    routers=lambda context: (
        methods_router(context, BETA),
        vectors_router(context, BETA),
        methods_router(context, STABLE),
        vectors_router(context, STABLE),
        models_router(context, BETA),
    ),
    pattern=re.compile(
        r"/v1/models/.+:"
        r"(generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)/?"
    ),
)
GEMINI_MODELS = Api(
    name="gemini",
    paths=(),
    errors=GEMINI.errors,
    routers=lambda context: [models_router(context, STABLE, routes_with(CLIENT_HEADER))],
    pattern=re.compile(r"/v1/(models|files|cachedContents|tunedModels|batches|operations)(/.*)?"),
    header=CLIENT_HEADER,
)

"""llama.cpp's `/completion` and `/infill`, and the API that they belong to."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.base import ModelInfo
from shepherd.server.api import Api
from shepherd.server.exchange import Call, Exchange
from shepherd.server.exchanges import Exchanges
from shepherd.server.llamacpp.answers import CompletionAnswer
from shepherd.server.llamacpp.model_routes import (
    DETOKENIZE_PATH,
    PROPS_PATH,
    SLOTS_PATH,
    TOKENIZE_PATH,
    model_router,
)
from shepherd.server.llamacpp.requests import (
    AnswerFields,
    CompletionBody,
    DetokenizeBody,
    InfillBody,
    TokenizeBody,
)
from shepherd.server.settings import ServerContext, ServerSettings
from shepherd.server.wire.errors import LlamaErrors
from shepherd.server.wire.prompts import check_images, check_raw, prompts_of, spread
from shepherd.server.wire.translation import plain_format
from shepherd.session import Infill, RawPrompt, Session

COMPLETION_PATH = "/completion"
INFILL_PATH = "/infill"


def completion_router(context: ServerContext) -> APIRouter:
    """The routes that continue raw prompts."""
    router = APIRouter()
    exchanges = Exchanges(context)

    @router.post("/completions", include_in_schema=False)
    @router.post(COMPLETION_PATH)
    async def complete(request: Request) -> Response:
        """Continue one or more prompts as they are, also at `/completions`."""
        body = await context.bodies.read(request, CompletionBody)
        build = partial(_completion, body, context.settings)
        return await exchanges.respond(request, Call(body.model, build, bool(body.stream)))

    @router.post(INFILL_PATH)
    async def infill(request: Request) -> Response:
        """Write what stands between two texts, with a model that has tokens for that."""
        body = await context.bodies.read(request, InfillBody)
        build = partial(_infill, body, context.settings)
        return await exchanges.respond(request, Call(body.model, build, bool(body.stream)))

    return router


def _completion(body: CompletionBody, settings: ServerSettings, model: ModelInfo) -> Exchange:
    check_raw(model)
    prompts = prompts_of(body.prompt)
    check_images(model, prompts.prompts)
    return _exchange(body, settings, model, prompts.prompts, many=prompts.many)


def _infill(body: InfillBody, settings: ServerSettings, model: ModelInfo) -> Exchange:
    check_raw(model, "input_prefix")
    return _exchange(body, settings, model, [body.to_infill()])


def _exchange(
    body: AnswerFields,
    settings: ServerSettings,
    model: ModelInfo,
    prompts: Sequence[RawPrompt | Infill],
    *,
    many: bool = False,
) -> Exchange:
    """The exchange of a request; raises ApiError."""
    count = body.count(settings.max_choices)
    probabilities = body.n_probs or None
    session = Session(
        sampling=replace(body.to_sampling(), logprobs=probabilities),
        output_format=plain_format(body.grammar, body.json_schema),
    )
    first, later = spread(prompts, session, count)
    limit = body.token_limit(settings.max_tokens)
    answer = CompletionAnswer(
        model=body.model or model.id,
        max_tokens=limit,
        many=many or count > 1,
        stream=bool(body.stream),
        probabilities=probabilities is not None,
        return_tokens=bool(body.return_tokens),
        all_timings=bool(body.timings_per_token),
        fields=body.response_fields or (),
    )
    progress = answer.progress if body.stream and body.return_progress else None
    lines = body.lines
    return Exchange(
        first,
        answer,
        count,
        limit,
        later=later,
        opened=answer.attach,
        progress=progress,
        limited=lines.limited if lines else None,
    )


LLAMACPP = Api(
    name="llamacpp",
    paths=(
        COMPLETION_PATH,
        "/completions",
        INFILL_PATH,
        TOKENIZE_PATH,
        DETOKENIZE_PATH,
        PROPS_PATH,
        SLOTS_PATH,
        "/apply-template",
    ),
    errors=LlamaErrors(),
    routers=lambda context: (completion_router(context), model_router(context)),
    bodies={
        COMPLETION_PATH: CompletionBody,
        INFILL_PATH: InfillBody,
        TOKENIZE_PATH: TokenizeBody,
        DETOKENIZE_PATH: DetokenizeBody,
    },
)

"""`POST /v1/completions`."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.base import ModelInfo
from shepherd.server.api import Api
from shepherd.server.completions.answers import CompletionAnswer
from shepherd.server.completions.requests import (
    CompletionRequest,
    prompts_in,
    session_from_request,
)
from shepherd.server.exchange import Call, Exchange
from shepherd.server.exchanges import Exchanges
from shepherd.server.settings import ServerContext, ServerSettings
from shepherd.server.wire.answers import fingerprint
from shepherd.server.wire.errors import OpenAiErrors
from shepherd.server.wire.prompts import check_images, spread
from shepherd.session import Infill, RawPrompt

PATH = "/v1/completions"


def completions_router(context: ServerContext) -> APIRouter:
    """The completions route."""
    router = APIRouter()
    exchanges = Exchanges(context)

    @router.post(PATH)
    async def create_completion(request: Request) -> Response:
        """Continue one or more prompts as they are, without a chat template.

        Only models that run in this process take raw prompts.
        """
        body = await context.bodies.read(request, CompletionRequest)
        build = partial(_exchange, body, context.settings)
        return await exchanges.respond(request, Call(body.model, build, bool(body.stream)))

    return router


def _exchange(body: CompletionRequest, settings: ServerSettings, model: ModelInfo) -> Exchange:
    """The exchange of a request; raises ApiError."""
    session = session_from_request(body, model)
    prompts = prompts_in(body)
    check_images(model, prompts)
    candidates = body.candidates(settings.max_choices)
    first, later = spread(prompts, session, candidates)
    options = body.stream_options
    answer = CompletionAnswer(
        model=body.model or model.id,
        fingerprint=fingerprint(model),
        count=body.n or 1,
        candidates=candidates,
        echoes=[_text(prompt) for prompt in prompts] if body.echo else (),
        logprobs=body.logprobs is not None,
        stream_usage=bool(options is not None and options.include_usage),
    )
    limit = body.token_limit(settings.max_tokens)
    return Exchange(first, answer, candidates, limit, later=later, opened=answer.attach)


def _text(prompt: RawPrompt | Infill) -> str | None:
    """The text of a prompt, None if it has tokens."""
    if isinstance(prompt, Infill):
        return prompt.prefix
    texts = [part for part in prompt.parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(prompt.parts) else None


COMPLETIONS = Api(
    name="completions",
    paths=(PATH,),
    errors=OpenAiErrors(),
    routers=lambda context: (completions_router(context),),
    bodies={PATH: CompletionRequest},
)

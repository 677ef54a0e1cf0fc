"""The paths that continue raw prompts, and the two APIs that they belong to."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter
from msgspec.structs import replace
from starlette.responses import Response

from shepherd.backends.base import ModelInfo
from shepherd.sampling import choice_seed
from shepherd.server.api import Api
from shepherd.server.errors import unsupported
from shepherd.server.raw import model_routes, requests, slots
from shepherd.server.raw.answers import LlamaCompletion, OpenAiCompletion
from shepherd.server.responses import SERVER_SENT_EVENTS
from shepherd.server.serving import Exchange, Serving, serves
from shepherd.server.settings import ServerContext, ServerSettings
from shepherd.server.wire import errors, fields
from shepherd.server.wire.content import IMAGES_FIELD, prompts_of
from shepherd.session import Infill, RawPrompt, Session

COMPLETION_PATH = "/completion"
INFILL_PATH = "/infill"
OPENAI_PATH = "/v1/completions"


def completions_router(context: ServerContext) -> APIRouter:
    """OpenAI's route."""
    router = APIRouter()

    @router.post(OPENAI_PATH)
    async def create_completion(
        body: Annotated[requests.CompletionRequest, context.bodies.of(requests.CompletionRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue one or more prompts as they are, without a chat template.

        Only models that run in this process take raw prompts.
        """
        model = await serving.lease(body.model)
        exchange = _completion_exchange(body, context.settings, model.info)
        return await serving.respond(model, exchange, SERVER_SENT_EVENTS if body.stream else None)

    return router


def completion_router(context: ServerContext) -> APIRouter:
    """llama.cpp's routes."""
    router = APIRouter()

    @router.post("/completions")
    @router.post(COMPLETION_PATH)
    async def complete(
        body: Annotated[requests.CompletionBody, context.bodies.of(requests.CompletionBody)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue one or more prompts as they are, also at `/completions`."""
        model = await serving.lease(body.model)
        _check_raw(model.info)
        prompts = prompts_of(body.prompt)
        exchange = _llama_exchange(
            body, prompts.prompts, context.settings, model.info, many=prompts.many
        )
        return await serving.respond(model, exchange, SERVER_SENT_EVENTS if body.stream else None)

    @router.post(INFILL_PATH)
    async def infill(
        body: Annotated[requests.InfillBody, context.bodies.of(requests.InfillBody)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Write what stands between two texts, with a model that has tokens for that."""
        model = await serving.lease(body.model)
        _check_raw(model.info, "input_prefix")
        exchange = _llama_exchange(body, [body.infill], context.settings, model.info)
        return await serving.respond(model, exchange, SERVER_SENT_EVENTS if body.stream else None)

    return router


def _completion_exchange(
    body: requests.CompletionRequest, settings: ServerSettings, model: ModelInfo
) -> Exchange:
    """The exchange of a request to OpenAI's API; raises ApiError."""
    _check_raw(model)
    if body.echo and body.suffix and body.logprobs is not None:
        message = "logprobs: log probabilities beside a gap are not computed; leave out echo"
        raise unsupported("logprobs", message)
    is_ranked = (body.best_of or 1) > (body.n or 1)
    # answers are ranked by their log probabilities, requested or not
    session = body.session(logprobs=(body.logprobs or 0) if is_ranked else body.logprobs)
    prompts, candidates = body.prompts, body.candidates(settings.max_choices)
    echoes = [_text_of(prompt) for prompt in prompts] if body.echo else ()
    answer = OpenAiCompletion(body, model, candidates, echoes)
    limit = requests.raw_token_limit(body.max_tokens, settings.max_tokens)
    first, later = _sessions(prompts, session, model, candidates)
    return Exchange(first, answer, count=candidates, max_tokens=limit, later=later)


def _llama_exchange(
    body: requests.LlamaRequest,
    prompts: Sequence[RawPrompt | Infill],
    settings: ServerSettings,
    model: ModelInfo,
    *,
    many: bool = False,
) -> Exchange:
    """The exchange of a request to llama.cpp's API; raises ApiError.

    `many`: the prompts came in a list, and so does the answer, even to a single one.
    """
    count = fields.choice_count(body.n_cmpl, settings.max_choices, "n_cmpl")
    limit = requests.raw_token_limit(body.n_predict, settings.max_tokens)
    answer = LlamaCompletion(body, model, limit, as_list=many or count > 1)
    session = body.session(logprobs=body.n_probs or None)
    session.sampling = replace(session.sampling, logprobs_after=body.post_sampling_probs)
    first, later = _sessions(prompts, session, model, count)
    return Exchange(
        first,
        answer,
        count=count,
        max_tokens=limit,
        later=later,
        progress=answer.progress if body.stream and body.return_progress else None,
        slot=body.slot,
        limited=body.lines.limited if body.lines else None,
    )


def _check_raw(model: ModelInfo, where: str = "prompt") -> None:
    """Raise ApiError for a model that takes messages only."""
    if not model.raw_prompts:
        message = f"{model.id} takes messages only, because it does not run in this process."
        raise unsupported(where, f"{where}: {message}")


def _sessions(
    prompts: Sequence[RawPrompt | Infill], session: Session, model: ModelInfo, count: int
) -> tuple[Session, list[Session]]:
    """The session of the first prompt, and one for each of `count` answers to the others.

    Raises ApiError for images that the model can't see.
    """
    has_images = any(isinstance(prompt, RawPrompt) and prompt.images for prompt in prompts)
    if has_images and model.vision is not True:
        raise unsupported(IMAGES_FIELD, f"{IMAGES_FIELD}: {model.id} takes text only")
    first, *others = (replace(session, raw_prompt=prompt) for prompt in prompts)
    sampling = session.sampling
    later: list[Session] = []
    for other in others:
        for index in range(count):  # equal seeds would write equal answers
            seed = choice_seed(sampling.seed, index)
            later.append(replace(other, sampling=replace(sampling, seed=seed)))
    return first, later


def _text_of(prompt: RawPrompt | Infill) -> str | None:
    """The text of a prompt, None if it has tokens."""
    if isinstance(prompt, Infill):
        return prompt.prefix
    texts = [part for part in prompt.parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(prompt.parts) else None


COMPLETIONS = Api(
    name="completions",
    paths=(OPENAI_PATH,),
    errors=errors.OpenAiErrors(),
    routers=lambda context: (completions_router(context),),
)
LLAMACPP = Api(
    name="llamacpp",
    paths=(
        COMPLETION_PATH,
        "/completions",
        INFILL_PATH,
        model_routes.TOKENIZE_PATH,
        model_routes.DETOKENIZE_PATH,
        model_routes.PROPS_PATH,
        slots.SLOTS_PATH,
        "/apply-template",
    ),
    errors=errors.LlamaErrors(),
    routers=lambda context: (
        completion_router(context),
        model_routes.model_router(context),
        slots.slots_router(context),
    ),
)

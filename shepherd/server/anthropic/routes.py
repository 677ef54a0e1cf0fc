"""The paths of the Messages API: messages, their tokens, and models in Anthropic's shape."""

import re
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.base import ModelInfo, ModelKind
from shepherd.messages import JsonObject
from shepherd.server import errors, generation, responses
from shepherd.server.anthropic import answers, requests
from shepherd.server.anthropic.to_session import left_out_types, session_of
from shepherd.server.api import Api, routes_with
from shepherd.server.models import find_model
from shepherd.server.serving import Exchange, Serving, serves
from shepherd.server.settings import ServerContext
from shepherd.server.wire.fields import MAX_TOKENS

MESSAGES_PATH = "/v1/messages"
COUNT_PATH = f"{MESSAGES_PATH}/count_tokens"
EVENTS = responses.StreamFormat("text/event-stream", answers.PING, comments=True)
HEADER = "anthropic-version"
_MAX_PAGE = 1000
_MAX_LIMIT_DIGITS = 5
_USUAL_PAGE = 20


def messages_router(context: ServerContext) -> APIRouter:
    """The routes of messages."""
    router = APIRouter()

    @router.post(MESSAGES_PATH)
    async def create_message(
        body: Annotated[requests.MessagesRequest, context.bodies.of(requests.MessagesRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue a conversation in Anthropic's form, streaming or not.

        The prompt is processed before the first header is sent, so a conversation that does not
        fit is a 400 either way. Hanging up stops the work.
        """
        model = await serving.lease(body.model)
        exchange = await serving.translate(body.messages, _exchange, body, context, model.info)
        return await serving.respond(model, exchange, EVENTS if body.stream else None)

    @router.post(COUNT_PATH)
    async def count_message_tokens(
        body: Annotated[requests.CountRequest, context.bodies.of(requests.CountRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> responses.JsonResponse:
        """How many tokens the prompt of such a request takes.

        Exact for a model in this process, an estimate for providers.
        """
        model = await serving.lease(body.model)
        exchange = await serving.translate(body.messages, _exchange, body, context, model.info)
        return responses.JsonResponse({"input_tokens": await serving.count_tokens(model, exchange)})

    return router


def _exchange(
    body: requests.MessagesRequest | requests.CountRequest, context: ServerContext, model: ModelInfo
) -> Exchange:
    """The exchange of a request; raises ApiError. Without a limit, 0, the prompt is only read."""
    thoughts, limit = answers.Thoughts(context.seal), body.max_tokens or 0
    session = session_of(body, thoughts, model, thinking=context.settings.thinking)
    return Exchange(
        session,
        answers.MessageAnswer(body, model, thoughts, session.thinking),
        max_tokens=min(limit, MAX_TOKENS) or generation.NO_TOKENS,
        tools_allowed=body.tool_choice is None or body.tool_choice.type != "none",
        left_out=left_out_types(body),
    )


def models_router(context: ServerContext) -> APIRouter:
    """The routes that list models."""
    router = APIRouter(
        prefix="/v1/models", route_class=routes_with(HEADER), include_in_schema=False
    )

    @router.get("")
    async def list_anthropic_models(request: Request) -> responses.JsonResponse:
        """The models on offer, in pages."""
        await context.models.refresh()
        models = [_model(info, context.started) for info in context.models.listed()]
        return responses.JsonResponse(_page(models, request))

    @router.get("/{model_id:path}")
    async def get_anthropic_model(model_id: str) -> responses.JsonResponse:
        """The model of that id; 404 for any other."""
        model = await find_model(model_id, context.models)
        if model is None:
            raise errors.ApiError(404, f"model: {model_id}", "model_not_found", "model")
        return responses.JsonResponse(_model(model.info, context.started))

    return router


def _page(models: list[JsonObject], request: Request) -> JsonObject:
    """The part of the list that `limit`, `after_id` and `before_id` name."""
    query, ids = request.query_params, [model["id"] for model in models]
    limit = _limit(query.get("limit"))
    after, before = query.get("after_id"), query.get("before_id")
    if before in ids:
        candidates = models[: ids.index(before)]
        page = candidates[-limit:]
    else:  # an id that is not in the list names no page, and the list begins anew
        candidates = models[ids.index(after) + 1 :] if after in ids else models
        page = candidates[:limit]
    return {
        "data": page,
        "has_more": len(candidates) > limit,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


def _limit(text: str | None) -> int:
    """The size of a page in the query `limit`; raises ApiError for one that is not allowed."""
    if text is None:
        return _USUAL_PAGE
    # Python refuses to convert very long digits
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_LIMIT_DIGITS
    if not (is_number and 0 < int(text) <= _MAX_PAGE):
        raise errors.invalid("limit", f"must be from 1 to {_MAX_PAGE}")
    return int(text)


def _model(info: ModelInfo, created: int) -> JsonObject:
    """A model as Anthropic lists it; `created` is a Unix time."""
    # what a model sees may not be known, and one that makes vectors has no such capabilities
    is_unknown = info.vision is None or info.kind is not ModelKind.TEXT
    return {
        "type": "model",
        "id": info.id,
        "display_name": info.id,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": info.context_size or None,
        "max_tokens": info.context_size or None,
        "capabilities": None if is_unknown else _capabilities(vision=bool(info.vision)),
    }


def _capabilities(*, vision: bool) -> JsonObject:
    """What the server can do with a model; the thinking of a model that can't is empty."""
    yes, no = {"supported": True}, {"supported": False}
    efforts = ("low", "medium", "high", "xhigh", "max")
    thinking_types = ("enabled", "adaptive", "disabled", "between_tools")
    not_served = ("batch", "citations", "code_execution")
    capabilities: dict[str, Any] = {
        "image_input": {"supported": vision},
        "pdf_input": {"supported": find_spec("pypdf") is not None},
        "structured_outputs": yes,
        "thinking": yes | {"types": dict.fromkeys(thinking_types, yes)},
        "effort": no | dict.fromkeys(efforts, no),
        "context_management": no,
        "server_tools": no | {"code_execution": no, "web_search": no},
    }
    return capabilities | dict.fromkeys(not_served, no)


ANTHROPIC = Api(
    name="anthropic",
    paths=(MESSAGES_PATH,),
    errors=answers.AnthropicErrors(),
    routers=lambda context: (models_router(context), messages_router(context)),
    pattern=re.compile(r"/v1/(models|files|skills|complete)(/.*)?"),
    header=HEADER,
)

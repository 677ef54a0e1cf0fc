"""`GET /v1/models` in Anthropic's shape, for requests with its header."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.routing import Match
from starlette.types import Scope

from shepherd.backends.base import ModelInfo, ModelKind
from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError, invalid
from shepherd.server.models import listed_id
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext

HEADER = "anthropic-version"
_MAX_PAGE = 1000
_USUAL_PAGE = 20


class AnthropicRoute(APIRoute):
    """A route for requests that carry Anthropic's header; others go to another API's."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not any(name == HEADER.encode() for name, _ in scope["headers"]):
            return Match.NONE, {}
        return super().matches(scope)


def models_router(context: ServerContext) -> APIRouter:
    """The routes that list models."""
    router = APIRouter(prefix="/v1/models", route_class=AnthropicRoute, include_in_schema=False)

    @router.get("")
    async def list_anthropic_models(request: Request) -> JsonResponse:
        """The models on offer, in pages."""
        await context.models.refresh()
        models = [_model(info, context.started) for info in context.models.listed()]
        return JsonResponse(_page(models, request))

    @router.get("/{model_id:path}")
    async def get_anthropic_model(model_id: str) -> JsonResponse:
        """The model of that id; 404 for any other."""
        await context.models.refresh()
        for info in context.models.listed():
            if info.id == listed_id(model_id, context.models):
                return JsonResponse(_model(info, context.started))
        raise ApiError(404, f"model: {model_id}", "model_not_found", "model")

    return router


def _page(models: list[JsonObject], request: Request) -> JsonObject:
    """The part of the list that `limit`, `after_id` and `before_id` name."""
    query, ids = request.query_params, [model["id"] for model in models]
    limit = _limit(query.get("limit"))
    after, before = query.get("after_id"), query.get("before_id")
    if before in ids:
        rest = models[: ids.index(before)]
        page, more = rest[-limit:], len(rest) > limit
    else:
        rest = models[ids.index(after) + 1 :] if after in ids else models
        page, more = rest[:limit], len(rest) > limit
    return {
        "data": page,
        "has_more": more,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


def _limit(text: str | None) -> int:
    if text is None:
        return _USUAL_PAGE
    if not (text.isascii() and text.isdigit() and 0 < int(text[:5]) <= _MAX_PAGE):
        raise invalid("limit", f"must be from 1 to {_MAX_PAGE}")
    return int(text)


def _model(info: ModelInfo, created: int) -> JsonObject:
    unknown = info.vision is None or info.kind is not ModelKind.TEXT
    return {
        "type": "model",
        "id": info.id,
        "display_name": info.id,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": info.context_size or None,
        "max_tokens": info.context_size or None,
        "capabilities": None if unknown else _capabilities(vision=bool(info.vision)),
    }


def _capabilities(*, vision: bool) -> JsonObject:
    """What the server can do with a model; the thinking of a model that can't is empty."""
    yes, no = {"supported": True}, {"supported": False}
    efforts = ("low", "medium", "high", "xhigh", "max")
    types = {"enabled": yes, "adaptive": yes, "disabled": yes, "between_tools": yes}
    capabilities: dict[str, Any] = {
        "image_input": {"supported": vision},
        "structured_outputs": yes,
        "thinking": yes | {"types": types},
        "effort": no | dict.fromkeys(efforts, no),
        "context_management": no,
        "server_tools": no,
    }
    return capabilities | dict.fromkeys(("batch", "citations", "code_execution", "pdf_input"), no)

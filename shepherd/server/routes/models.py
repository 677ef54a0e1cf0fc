"""`GET /v1/models` and `GET /v1/models/{id}`."""

from fastapi import APIRouter

from shepherd.messages import JsonObject
from shepherd.server.context import ServerContext
from shepherd.server.errors import ApiError
from shepherd.server.json_response import JsonResponse


def models_router(context: ServerContext) -> APIRouter:
    """The routes that tell which model answers."""
    router = APIRouter(prefix="/v1/models")

    @router.get("")
    async def list_models() -> JsonResponse:
        """The model that is loaded, as a list of one."""
        return JsonResponse({"object": "list", "data": [_model(context)]})

    @router.get("/{model_id:path}")
    async def get_model(model_id: str) -> JsonResponse:
        """The model of that id; 404 `model_not_found` for any other."""
        model = _model(context)
        if model_id != model["id"]:
            message = f"The model '{model_id}' does not exist; this server has '{model['id']}'."
            raise ApiError(404, message, "model_not_found", "model")
        return JsonResponse(model)

    return router


def _model(context: ServerContext) -> JsonObject:
    info = context.backend.info
    seen = ["text", "image"] if info.vision else ["text"]
    return {
        "id": info.id,
        "object": "model",
        "created": context.started,
        "owned_by": info.owned_by,
        "max_model_len": info.context_size or None,
        **({} if info.vision is None else {"architecture": {"input_modalities": seen}}),
    }

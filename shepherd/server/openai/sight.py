"""Refusing images where nobody would see them, instead of leaving them out in silence."""

from shepherd.backends.base import ModelInfo
from shepherd.server.errors import ApiError
from shepherd.server.openai.requests import ChatRequest

_SHOWING = ("user", "tool", "function")


def check_images(request: ChatRequest, model: ModelInfo) -> None:
    """Raise ApiError for an image that the model can't see, or that nobody could have sent."""
    for index, message in enumerate(request.messages):
        if not message.content.images:
            continue
        param = f"messages.{index}.content"
        if model.vision is False:
            text = f"images are not supported: {model.id} reads text only; leave them out"
            raise ApiError(400, f"{param}: {text}", "invalid_value", param)
        if message.role not in _SHOWING:
            text = "images go with messages of the user and of tools"
            raise ApiError(400, f"{param}: {text}", "invalid_value", param)

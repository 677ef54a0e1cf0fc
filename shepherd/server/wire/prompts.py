"""Prompts without messages: texts, numbers of tokens, and lists of them."""

from typing import cast

from msgspec import Struct

from shepherd.errors import ImageError
from shepherd.images import Image
from shepherd.messages import JsonObject
from shepherd.server.errors import invalid
from shepherd.server.wire.content import images_in_base64
from shepherd.session import MEDIA_MARK, RawPrompt

MAX_PROMPTS = 128
IMAGES_FIELD = "multimodal_data"
_FORM = "must be a text, a list of tokens, or a list of such prompts"


class Prompts(Struct, frozen=True):
    """The prompts of a request; `many` says whether they came in a list."""

    prompts: tuple[RawPrompt, ...]
    many: bool


def prompts_of(value: object, where: str = "prompt", limit: int = MAX_PROMPTS) -> Prompts:
    """The prompts in the value of a field, at most `limit`; raises ApiError.

    A list of texts and numbers together is one prompt, a list of texts is several.
    """
    if not isinstance(value, list):
        return Prompts((_single(value, where),), many=False)
    items = cast(list[object], value)
    if not items:
        raise invalid(where, "must not be an empty list")
    has_tokens = any(_is_token(item) for item in items)
    if has_tokens and all(_is_token(item) or isinstance(item, str) for item in items):
        return Prompts((_single(items, where),), many=False)
    if len(items) > limit:
        raise invalid(where, f"takes at most {limit} prompts")
    prompts = [_single(item, f"{where}.{index}") for index, item in enumerate(items)]
    return Prompts(tuple(prompts), many=True)


def _single(value: object, where: str) -> RawPrompt:
    if isinstance(value, str):
        return RawPrompt((value,))
    if isinstance(value, dict):
        return _object(cast(JsonObject, value), where)
    if not isinstance(value, list):
        raise invalid(where, _FORM)
    parts: list[str | int] = []
    for item in cast(list[object], value):
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise invalid(where, _FORM)
        parts.append(item)
    if not parts:
        raise invalid(where, "must not be an empty list")
    return RawPrompt(tuple(parts))


def _object(fields: JsonObject, where: str) -> RawPrompt:
    """llama.cpp's form of a prompt with images."""
    text: object = fields.get("prompt_string")
    if not isinstance(text, str):
        raise invalid(where, "needs a text in prompt_string")
    images = _images(fields.get(IMAGES_FIELD) or [], f"{where}.{IMAGES_FIELD}")
    if images and text.count(MEDIA_MARK) != len(images):
        raise invalid(where, f"needs a {MEDIA_MARK} in prompt_string for each image")
    return RawPrompt((text,), images=images)


def _images(value: object, where: str) -> tuple[Image, ...]:
    try:
        return images_in_base64(value)
    except ImageError as error:
        raise invalid(where, f"can't be used: {error}") from error
    except ValueError as error:
        raise invalid(where, str(error)) from error


def _is_token(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)

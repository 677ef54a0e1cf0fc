"""Prompts without messages: texts, numbers of tokens, and lists of them."""

from collections.abc import Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from shepherd.backends.base import ModelInfo
from shepherd.errors import ImageError
from shepherd.images import Image
from shepherd.messages import JsonObject
from shepherd.sampling import choice_seed
from shepherd.server.errors import invalid, unsupported
from shepherd.server.wire.content import images_in_base64
from shepherd.session import MEDIA_MARK, Infill, RawPrompt, Session

MAX_PROMPTS = 128
_IMAGES = "multimodal_data"
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
    if all(_is_token(item) or isinstance(item, str) for item in items) and any(
        _is_token(item) for item in items
    ):
        return Prompts((_single(items, where),), many=False)
    if len(items) > limit:
        raise invalid(where, f"takes at most {limit} prompts")
    prompts = [_single(item, f"{where}.{index}") for index, item in enumerate(items)]
    return Prompts(tuple(prompts), many=True)


def check_images(model: ModelInfo, prompts: Sequence[RawPrompt | Infill]) -> None:
    """Raise ApiError for images that the model can't see."""
    with_images = any(isinstance(prompt, RawPrompt) and prompt.images for prompt in prompts)
    if with_images and model.vision is not True:
        raise unsupported(_IMAGES, f"{_IMAGES}: {model.id} takes text only")


def check_raw(model: ModelInfo, where: str = "prompt") -> None:
    """Raise ApiError for a model that takes messages only."""
    if not model.raw_prompts:
        message = f"{model.id} takes messages only, because it does not run in this process."
        raise unsupported(where, f"{where}: {message}")


def spread(
    prompts: Sequence[RawPrompt | Infill], session: Session, count: int
) -> tuple[Session, list[Session]]:
    """The session of the first prompt, and one for each of `count` answers to the others."""
    first, *others = (replace(session, raw_prompt=prompt) for prompt in prompts)
    sampling = session.sampling
    seeds = [choice_seed(sampling.seed, index) for index in range(count)]
    later = [
        replace(other, sampling=replace(sampling, seed=seed)) for other in others for seed in seeds
    ]
    return first, later


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
    images = _images(fields.get(_IMAGES) or [], f"{where}.{_IMAGES}")
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

"""What a model reads: content of messages, calls of the history, prompts without messages."""

from collections.abc import Sequence
from typing import cast

from msgspec import Struct, field

from shepherd import errors, messages
from shepherd.backends.output.repair import loads, repair_json
from shepherd.images import Image, check_count, decode_image
from shepherd.json_text import as_list, as_texts
from shepherd.server.errors import invalid
from shepherd.session import MEDIA_MARK, RawPrompt

_TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_IMAGE_TYPES = ("image_url", "input_image")

MAX_PROMPTS = 128
IMAGES_FIELD = "multimodal_data"
_FORM = "must be a text, a list of tokens, or a list of such prompts"


class Content(Struct, frozen=True):
    """The text parts joined by newlines, and the images in their order."""

    text: str = ""
    images: tuple[Image, ...] = ()


def content_of(content: object) -> Content:
    """The content in a string, null or list of parts; raises ValueError for anything else.

    Images must be `data:` URLs: the server fetches nothing for a client.
    """
    if content is None:
        return Content()
    if isinstance(content, str):
        return Content(content)
    if not isinstance(content, list):
        raise ValueError("content must be a string or a list of parts")
    parts = [_part(part) for part in cast(list[object], content)]
    images = tuple(part for part in parts if isinstance(part, Image))
    check_count(images)
    return Content("\n".join(part for part in parts if isinstance(part, str)), images)


def _part(part: object) -> str | Image:
    """The text or image of one part, such as `{"type": "text", "text": "hi"}`, or of a text."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise ValueError("a content part must be an object with a type")
    fields = cast(messages.JsonObject, part)
    kind = fields.get("type")
    if kind in _IMAGE_TYPES:
        return _image(fields.get("image_url"))
    key = _TEXT_KEYS.get(kind) if isinstance(kind, str) else None
    if key is None:
        raise ValueError(f"content of type {kind!r} is not supported; send text and images only")
    text: object = fields.get(key)
    if not isinstance(text, str):
        raise ValueError(f"a content part of type {kind!r} needs a string in {key!r}")
    return text


def _image(value: object) -> Image:
    """The image of a part: its URL is a string, or inside an object."""
    url = cast(messages.JsonObject, value).get("url") if isinstance(value, dict) else value
    if not isinstance(url, str):
        raise ValueError("a content part with an image needs its URL in 'image_url'")
    if url[:5].lower() != "data:":
        raise ValueError(
            "image_url must be a data URL (data:image/png;base64,…): this server fetches nothing, "
            "so send the image itself"
        )
    return decode_image(url)


def images_in_base64(value: object) -> tuple[Image, ...]:
    """The images of a list of texts; raises ValueError, which is an ImageError for a bad image."""
    texts = as_texts(value)
    if not isinstance(value, list) or len(texts) < len(as_list(value)):
        raise ValueError("must be a list of images in base64")
    check_count(texts)
    return tuple(map(decode_image, texts))


_MAX_NESTING = 3
_MAX_PARSED = 256 * 1024
_MAX_REPAIRED = 16 * 1024


def arguments_object(arguments: object) -> messages.JsonObject:
    """The arguments as an object; text that can't be repaired is kept under `_raw`.

    Bad arguments are never refused: one bad call must not break every later request of its
    conversation.
    """
    value = arguments
    for _ in range(_MAX_NESTING):  # a string in a string: encoded more than once
        if not isinstance(value, str):
            break
        value = _parse(value)
    if value is None:  # a call without arguments
        return {}
    if isinstance(value, dict):
        return cast(messages.JsonObject, value)
    return {"_raw": arguments}


def _parse(text: str) -> object:
    """The JSON in `text`, repaired if necessary; False, which is no object either, without any.

    Other requests wait for this, so long texts are not repaired, and even longer ones not parsed.
    """
    if len(text) > _MAX_PARSED:
        return False
    if not text.strip():
        return {}
    try:
        return loads(text)
    except ValueError:
        if len(text) > _MAX_REPAIRED:
            return False
    try:
        return repair_json(text, close_string=True)
    except ValueError:
        return False


class CallHistory(Struct):
    """The calls so far; a result finds its own by id, else by name, else by order."""

    _calls_without_id: int = 0
    # all calls by their ids: those without a result in their order, and the names of all
    _unanswered: dict[str, messages.ToolCall] = field(default_factory=dict[str, messages.ToolCall])
    _names_by_id: dict[str, str] = field(default_factory=dict[str, str])

    def next_id(self) -> str:
        """An id for a call that has none: its number in the conversation."""
        self._calls_without_id += 1
        return f"call_{self._calls_without_id}"

    def add(self, calls: Sequence[messages.ToolCall]) -> None:
        """Note calls that the model made."""
        self._unanswered.update((call.id, call) for call in calls)
        self._names_by_id.update((call.id, call.name) for call in calls)

    def answered(self, call_id: str, name: str) -> tuple[str, str]:
        """The id and the name of the call that a result belongs to; "" where it is unknown."""
        if call_id in self._names_by_id:
            self._unanswered.pop(call_id, None)
            return call_id, self._names_by_id[call_id]
        same_name = (call for call in self._unanswered.values() if call.name == name)
        call = next(same_name, None)
        if call is None and not (name or call_id):  # results then come in the order of the calls
            call = next(iter(self._unanswered.values()), None)
        if call is None:  # what it answers may have left the conversation
            return call_id or self.next_id(), name
        del self._unanswered[call.id]
        return call.id, call.name


class Prompts(Struct, frozen=True):
    """The prompts of a request; `many` says whether they came in a list."""

    prompts: tuple[RawPrompt, ...]
    many: bool


def prompts_of(value: object, where: str = "prompt", limit: int = MAX_PROMPTS) -> Prompts:
    """The prompts in the value of a field, at most `limit`; raises ApiError.

    A list of texts and numbers together is one prompt, a list of texts is several.
    """
    if not isinstance(value, list):
        return Prompts((_single_prompt(value, where),), many=False)
    items = cast(list[object], value)
    if not items:
        raise invalid(where, "must not be an empty list")
    has_tokens = any(_is_token(item) for item in items)
    if has_tokens and all(_is_token(item) or isinstance(item, str) for item in items):
        return Prompts((_single_prompt(items, where),), many=False)
    if len(items) > limit:
        raise invalid(where, f"takes at most {limit} prompts")
    prompts = [_single_prompt(item, f"{where}.{index}") for index, item in enumerate(items)]
    return Prompts(tuple(prompts), many=True)


def _single_prompt(value: object, where: str) -> RawPrompt:
    """The prompt of a text, an object with images, or a list of texts and tokens."""
    if isinstance(value, str):
        return RawPrompt((value,))
    if isinstance(value, dict):
        return _prompt_with_images(cast(messages.JsonObject, value), where)
    if not isinstance(value, list):
        raise invalid(where, _FORM)
    parts: list[str | int] = []
    for item in cast(list[object], value):
        if not (_is_token(item) or isinstance(item, str)):
            raise invalid(where, _FORM)
        parts.append(cast(str | int, item))
    if not parts:
        raise invalid(where, "must not be an empty list")
    return RawPrompt(tuple(parts))


def _prompt_with_images(fields: messages.JsonObject, where: str) -> RawPrompt:
    """llama.cpp's form of a prompt with images; raises ApiError."""
    text: object = fields.get("prompt_string")
    if not isinstance(text, str):
        raise invalid(where, "needs a text in prompt_string")
    images_where = f"{where}.{IMAGES_FIELD}"
    try:
        images = images_in_base64(fields.get(IMAGES_FIELD) or [])
    except errors.ImageError as error:
        raise invalid(images_where, f"can't be used: {error}") from error
    except ValueError as error:
        raise invalid(images_where, str(error)) from error
    if images and text.count(MEDIA_MARK) != len(images):
        raise invalid(where, f"needs a {MEDIA_MARK} in prompt_string for each image")
    return RawPrompt((text,), images=images)


def _is_token(item: object) -> bool:
    """Whether a JSON value is the number of a token; Python counts true and false as numbers."""
    return isinstance(item, int) and not isinstance(item, bool)

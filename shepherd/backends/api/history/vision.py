"""Replaces images that a model can't see by lines of text."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.vision import cannot_see, new_images
from shepherd.errors import ImageError
from shepherd.images import Image
from shepherd.messages import Message
from shepherd.session import Session

_BLIND = re.compile(
    r"image[ _]?(input|content|url|part)?s?\b.{0,30}\b(is|are) not (supported|allowed|enabled)"
    r"|(not|n't|cannot|unable to) (support|accept|handle|take|see|read)\w*"
    r"( \w+){0,3} (image|vision|multi-?modal)"
    r"|only supported by certain models|not a (multi-?modal|vision) model|at most 0 images?"
    r"|no endpoints found that support image|mmproj"
    r"|missing data required for image input|unknown variant [`'\"]?image_url"
    r"|(only|must be) (text|'text'|\"text\"|a string)\b.{0,40}\b(support|allow|image_url)",
    re.IGNORECASE,
)
_OF_TYPE = re.compile(r"mime|media.?type|image format|gif|webp|jpe?g|png", re.IGNORECASE)


def visible(session: Session, model: ModelTraits, types: Collection[str]) -> Session:
    """The session to send: images that the model can't accept are lines of text."""
    if not any(message.images for message in session.messages):
        return session
    return replace(session, messages=[visible_message(m, model, types) for m in session.messages])


def visible_message(message: Message, model: ModelTraits, types: Collection[str]) -> Message:
    """A message to send; `types` are the media types that the model's API accepts."""
    kept = tuple(image for image in message.images if _is_seen(image, model, types))
    if len(kept) == len(message.images):
        return message
    unseen = tuple(image for image in message.images if image not in kept)
    return replace(replace(message, images=unseen).without_images(), images=kept)


def check_new_images(
    messages: Sequence[Message], model: ModelTraits, types: Collection[str]
) -> None:
    """Raise ImageError if the model can't see an image of the new messages."""
    for image in new_images(messages):
        if model.vision is False:
            raise cannot_see(model.id)
        if image.media_type not in types:
            kind, name = image.media_type.partition("/")[2].upper(), image.name or "An image"
            raise ImageError(f"{name} is a {kind}, which {model.id} can't read; send a PNG.")


def rejects_images(text: str) -> bool:
    """Whether a provider's error says that its model can't see, not that one image is wrong."""
    return bool(_BLIND.search(text)) and not _OF_TYPE.search(text)


def _is_seen(image: Image, model: ModelTraits, types: Collection[str]) -> bool:
    return model.vision is not False and image.media_type in types

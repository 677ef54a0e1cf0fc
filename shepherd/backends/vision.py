"""The new images of a conversation, and the error of a model that reads only text."""

from collections.abc import Iterator, Sequence

from shepherd.errors import ImageError
from shepherd.images import Image
from shepherd.messages import Message, Role


def new_images(messages: Sequence[Message]) -> Iterator[Image]:
    """The images since the last answer; a model has seen earlier ones already."""
    for message in reversed(messages):
        if message.role is Role.ASSISTANT:
            return
        yield from message.images


def earlier_images(messages: Sequence[Message]) -> list[Image]:
    """The images before the last answer."""
    newest = [id(image) for image in new_images(messages)]
    every = (image for message in messages for image in message.images)
    return [image for image in every if id(image) not in newest]


def cannot_see(model: str) -> ImageError:
    """The error for images that are sent to a model that reads only text."""
    return ImageError(
        f"{model} can't see images. Leave them out, or ask a model that can: "
        "`shepherd provider add` connects one."
    )


def refuse_images(messages: Sequence[Message], model: str) -> None:
    """Raise ImageError if a new image is sent to a model that reads only text."""
    for _ in new_images(messages):
        raise cannot_see(model)

"""The prefix of a session, by which its upstream is chosen."""

from collections.abc import Iterator
from hashlib import blake2b

from shepherd.affinity import Prefix, prefix_of
from shepherd.affinity.prefix import canonical
from shepherd.messages import Message, message_to_json
from shepherd.session import Session


def session_prefix(session: Session) -> Prefix:
    """The chain of the system message, the tools and the messages."""
    return prefix_of(_opening(session), map(_text, session.messages))


def _opening(session: Session) -> Iterator[str]:
    yield session.system_message
    for tool in session.tools:
        yield canonical([tool.name, tool.description, tool.parameters])


def _text(message: Message) -> str:
    if not message.images:
        return canonical(message_to_json(message))
    images = [blake2b(image.data, digest_size=16).hexdigest() for image in message.images]
    return canonical([images, message_to_json(message.without_images())])

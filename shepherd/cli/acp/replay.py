"""A saved conversation as the updates that its turns sent."""

from collections.abc import Iterable

from acp.helpers import (
    image_block,
    text_block,
    update_agent_message,
    update_user_message,
)

from shepherd.cli.acp.updates import SessionUpdates
from shepherd.cli.terminal.attachments import without_attachments
from shepherd.messages import Message, Role
from shepherd.tools.deferred.wrapper import open_call
from shepherd.tools.text import valid_text


def replay(messages: Iterable[Message], updates: SessionUpdates) -> None:
    """Send all messages in their order; calls come with their results."""
    for message in messages:
        match message.role:
            case Role.USER if not message.is_hint:
                for image in message.images:
                    updates.send(update_user_message(image_block(image.base64, image.media_type)))
                if message.content:
                    text = valid_text(without_attachments(message.content))
                    updates.send(update_user_message(text_block(text)))
            case Role.ASSISTANT:
                if message.reasoning:
                    updates.thought(message.reasoning)
                if message.content:
                    text = valid_text(message.content)
                    updates.send(update_agent_message(text_block(text)))
                for call in map(open_call, message.tool_calls):
                    updates.call_started(call)
            case Role.TOOL:
                updates.call_ended(message.tool_call_id, message.content)
            case _:
                pass
    updates.end_turn()

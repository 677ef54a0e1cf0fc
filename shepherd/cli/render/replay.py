"""A resumed conversation's last exchanges, as they looked."""

from shepherd.cli.render.renderer import Renderer
from shepherd.cli.terminal.attachments import without_attachments
from shepherd.events import CallbackEvent, Topic
from shepherd.messages import Message, Role
from shepherd.tools.text import counted

EXCHANGES = 3


def show_last_exchanges(messages: list[Message], renderer: Renderer) -> None:
    """Show the last exchanges, and say how much there is before them."""
    starts = [i for i, m in enumerate(messages) if m.role is Role.USER and not m.is_hint]
    begin = starts[-EXCHANGES] if len(starts) > EXCHANGES else 0
    if begin:
        renderer.notice(counted(begin, "earlier message"))
    for message in messages[begin:]:
        _show(message, renderer)
    renderer.turn_over()


def _show(message: Message, renderer: Renderer) -> None:
    match message.role:
        case Role.USER if message.is_hint:
            renderer(CallbackEvent.SYSTEM, message.content, Topic.HINT, "")
        case Role.USER:
            renderer.settle()
            renderer.user(without_attachments(message.plain_text))
        case Role.ASSISTANT:
            if message.content:
                renderer(CallbackEvent.CONTENT, message.content, "", "")
            renderer.settle()
            for call in message.tool_calls:
                renderer(CallbackEvent.TOOL_CALL, call.arguments_json, call.name, call.id)
        case Role.TOOL:
            text, call_id = message.plain_text, message.tool_call_id
            renderer(CallbackEvent.TOOL_RESULT, text, message.name, call_id)
        case Role.SYSTEM:
            pass

"""Making a history valid that was cut short: every call has its result, every result its call."""

from collections.abc import Iterable

from shepherd.messages import INTERRUPTED, Message, Role


def repaired(numbered: Iterable[tuple[int, Message]]) -> list[tuple[int | None, Message]]:
    """The messages with a result behind each call; what was filled in has no number.

    Results without a call are left out.
    """
    whole: list[tuple[int | None, Message]] = []
    waiting: dict[str, Message] = {}
    for number, message in numbered:
        if message.role is Role.TOOL:
            if waiting.pop(message.tool_call_id, None) is not None:
                whole.append((number, message))
            continue
        whole += [(None, result) for result in waiting.values()]
        waiting = {c.id: Message.tool(c, INTERRUPTED) for c in message.tool_calls}
        whole.append((number, message))
    return whole + [(None, result) for result in waiting.values()]

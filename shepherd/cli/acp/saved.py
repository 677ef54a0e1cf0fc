"""Saved conversations: pages of them, and one as the updates that its turns sent."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from acp.helpers import (
    image_block,
    text_block,
    update_agent_message,
    update_user_message,
)
from acp.schema import ListSessionsResponse, SessionInfo

from shepherd.cli.acp.prompt import invalid
from shepherd.cli.acp.updates import SessionUpdates
from shepherd.cli.terminal.attachments import without_attachments
from shepherd.errors import SessionError
from shepherd.messages import Message, Role
from shepherd.tools.deferred import open_call
from shepherd.tools.text import valid_text
from shepherd.transcript import SessionStore, SessionSummary

PAGE = 50
MAX_TITLE = 100


def list_page(store: SessionStore, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
    """The sessions of `cwd`, or all, after the `cursor`; raises RequestError for a wrong cursor.

    Sessions without a message, and damaged ones, are left out.
    """
    start = _position(cursor)
    page = list(islice(_summaries(store, cwd), start, start + PAGE + 1))
    return ListSessionsResponse(
        sessions=[_info(summary) for summary in page[:PAGE]],
        next_cursor=str(start + PAGE) if len(page) > PAGE else None,
    )


def _position(cursor: str | None) -> int:
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise invalid("The cursor is not one of session/list.")
    return int(cursor)


def _summaries(store: SessionStore, cwd: str | None) -> Iterator[SessionSummary]:
    if cwd is None:
        yield from store.summaries()[0]
        return
    for session_id in store.session_ids(Path(cwd)):
        try:
            summary = store.summary(session_id)
        except SessionError:  # `shepherd sessions list` shows it, with its error
            continue
        if summary.messages:
            yield summary


def _info(summary: SessionSummary) -> SessionInfo:
    return SessionInfo(
        session_id=summary.id,
        cwd=valid_text(summary.cwd),
        title=valid_text(summary.title[:MAX_TITLE]) or None,
        updated_at=summary.updated.isoformat(timespec="seconds"),
    )


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

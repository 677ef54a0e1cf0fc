"""The current state of the shared session, for `GET /session`."""

from itertools import groupby
from operator import itemgetter

from shepherd.conversation.shared.requests import PromptRequest
from shepherd.conversation.shared.session import SharedSession
from shepherd.messages import JsonObject, message_to_json


def snapshot(conversation: SharedSession, client: str) -> JsonObject:
    """Everything up to the update `update_id`, as far as this client may see it.

    A client that applies the updates after that id misses none and repeats none.
    """
    session, log, queue = conversation.session, conversation.log, conversation.queue
    return {
        "id": session.id,
        "update_id": log.id_of(log.last),
        "model": conversation.backend.info.id,
        "context": {
            "used": session.ledger.context_used,
            "size": conversation.backend.info.context_size,
        },
        "thinking": session.thinking,
        "commands": conversation.knowledge.command_list(),
        "skills": [
            {"name": skill.name, "description": skill.description}
            for skill in conversation.knowledge.skills
        ],
        "messages": [message_to_json(message.without_images()) for message in session.messages],
        "running": _running(conversation, client),
        "queue": [
            {
                "request": request.id,
                "position": queue.position(request),
                "prompt": request.prompt,
                "mine": _is_of(request, client),
            }
            for request in queue.waiting
        ],
        "approvals": [
            {"request": pending.request.id, **pending.to_json()}
            for pending in conversation.approver.pending(client)
        ],
    }


def _running(conversation: SharedSession, client: str) -> JsonObject | None:
    request = conversation.queue.running
    if request is None:
        return None
    return {
        "request": request.id,
        "prompt": request.prompt,
        "mine": _is_of(request, client),
        "partial": [
            {"kind": kind, "text": "".join(text for _, text in pieces)}
            for kind, pieces in groupby(conversation.publisher.partial, key=itemgetter(0))
        ],
        "waits_for_approval": conversation.approver.waiting,
    }


def _is_of(request: PromptRequest, client: str) -> bool:
    return request.client == client

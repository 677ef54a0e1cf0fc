"""`/approvals`: clients whose keys may approve see the open questions and answer them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.conversation.shared.updates import RESUME_HEADER
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.server.errors import to_api_error
from shepherd.server.record import record_of
from shepherd.server.responses import STREAMED, EventStreamResponse, Frames, JsonResponse
from shepherd.server.settings import ServerContext
from shepherd.server.shared.follow import DecisionBody, watch_log
from shepherd.tools.permissions.approval import Approval, Choice
from shepherd.version import __version__

APPROVALS_PATH = "/approvals"


def approvals_router(approvals: ClientApprovals, context: ServerContext) -> APIRouter:
    """The routes over the questions of the agent."""
    router = APIRouter(prefix=APPROVALS_PATH)

    @router.get("")
    async def list_approvals() -> JsonResponse:
        """The calls of the agent that wait for approval, with the update id of this state.

        Only with `--use-tools` and keys, for the scope `approve`. A client that reads the list at
        least every 10 seconds counts as connected.
        """
        approvals.note_reader()
        open_questions = [question.to_json() for question in approvals.questions()]
        log = approvals.log
        return JsonResponse({"approvals": open_questions, "update_id": log.id_of(log.last)})

    @router.get("/updates", response_class=Response, responses=STREAMED)
    async def read_approval_updates(request: Request) -> Response:
        """The questions and decisions as events; `Last-Event-ID` or `?after=` resumes after an id.

        Only with `--use-tools` and keys, for the scope `approve`.
        """
        after = request.headers.get(RESUME_HEADER) or request.query_params.get("after", "")

        @asynccontextmanager
        async def open_frames() -> AsyncGenerator[Frames]:
            with approvals.listening():
                yield watch_log(approvals.log, {"version": __version__}, after)

        return EventStreamResponse(open_frames, to_api_error, context.settings.keepalive)

    @router.post("/{id}")
    async def decide_agent_approval(
        id: str, request: Request, body: Annotated[DecisionBody, context.bodies.of(DecisionBody)]
    ) -> JsonResponse:
        """Answer a question of the agent; 404 if it does not wait any more.

        Only with `--use-tools` and keys, for the scope `approve`. The first answer counts.
        """
        by = record_of(request.scope).owner
        approval = Approval(Choice(body.decision), body.reason, by=by)
        approvals.decide(id, approval)
        return JsonResponse({"id": id, "decision": body.decision})

    return router

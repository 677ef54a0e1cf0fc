"""The routes of a shared session: its page, requests, updates, the session itself, approvals."""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from shepherd.conversation.commands.table import OWN_COMMANDS, named_command
from shepherd.conversation.shared import updates
from shepherd.conversation.shared.session import SharedSession, snapshot
from shepherd.images import check_count, decode_image
from shepherd.json_text import frame
from shepherd.messages import JsonObject
from shepherd.server import responses
from shepherd.server.access.audit import AuditLog, noted_command
from shepherd.server.access.key import KeyScope
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError, to_api_error
from shepherd.server.page import page_response
from shepherd.server.record import key_has, record_of
from shepherd.server.settings import ServerContext
from shepherd.server.shared.follow import DecisionBody, watch, watch_request
from shepherd.server.wire.errors import OpenAiErrors, error_body
from shepherd.transcript import SessionSummary

MAX_SESSIONS = 30
MAX_TITLE = 100

NO_KEY = "-"
"""Stands for the name of a key where none is needed."""

SCRIPTS = ("text.js", "markdown.js", "client.js", "messages.js", "main.js")
_CLIENT_ID = re.compile(r"[\x21-\x7e]{1,128}")


class ImageBody(RequestModel):
    """An image of a prompt."""

    data: str
    """Its bytes in base64, or a `data:` URL."""
    name: str = ""
    """What it is called."""


class PromptBody(RequestModel):
    """The body of `POST /request`."""

    model_config = ConfigDict(populate_by_name=False)

    prompt: str
    """What the user says."""
    images: list[ImageBody] = Field(default_factory=list[ImageBody])
    """Images that go with it: `data` in base64, and a `name`."""
    steer: bool = False
    """Join the running request of this client at its next step, if one runs."""
    stream: bool = False
    """Answer with the updates of this request as events."""
    in_background: Annotated[bool, Field(alias="async")] = False
    """Answer at once with the request's id."""

    @field_validator("prompt")
    @classmethod
    def _says_something(cls, prompt: str) -> str:
        if not prompt.strip():
            raise ValueError("must not be empty")
        return prompt

    @model_validator(mode="after")
    def _one_way(self) -> "PromptBody":
        if self.stream and self.in_background:
            raise ValueError("stream and async exclude each other")
        return self


class CommandBody(RequestModel):
    """The body of `POST /command`."""

    command: str
    """The command with its argument: `/undo 2`."""


class SharedSessionErrors(OpenAiErrors):
    """The `ErrorShape` of a shared session: responses are OpenAI's, a stream ends with `error`."""

    def event(self, error: ApiError) -> str:
        return frame({"error": error.code, "message": error.message}, updates.UpdateKind.ERROR)


def cli_router(conversation: SharedSession, context: ServerContext, audit: AuditLog) -> APIRouter:
    """The routes over one conversation; `audit` gets a line for each command."""
    router = APIRouter()
    _add_page(router)
    _add_requests(router, conversation, context)
    _add_updates(router, conversation, context)
    _add_session(router, conversation)
    _add_saved_sessions(router, conversation)
    _add_commands(router, conversation, context, audit)
    _add_approvals(router, conversation, context)
    return router


def _add_page(router: APIRouter) -> None:
    """Add the page for a browser at `/`."""

    @router.get("/", response_class=HTMLResponse)
    async def read_page() -> Response:
        """The page for a browser. It needs no key, has no data, and asks for a key itself."""
        return page_response("shared/page/page.html", *SCRIPTS)


def _add_requests(router: APIRouter, conversation: SharedSession, context: ServerContext) -> None:
    """Add the routes that send, read and cancel prompts."""

    @router.post("/request")
    async def send_request(
        request: Request, body: Annotated[PromptBody, context.bodies.of(PromptBody)]
    ) -> Response:
        """Put a prompt at the end of the queue.

        Waits for the answer. With `stream`, sends its updates as events; with `async`, answers 202
        at once. Disconnecting does not cancel it: other clients watch, and `GET /request/{id}` has
        the answer. 503 with `Retry-After` if too many requests wait.
        """
        named = _named_client(request)
        client = named or _new_client()
        identity = _identity(request, client)
        if named or body.stream:  # an unnamed client without a stream can't be asked for approvals
            conversation.presence.seen(identity)
        start = conversation.log.last  # before the request, whose first updates are followed too
        check_count(body.images)
        images = tuple(decode_image(image.data, image.name) for image in body.images)
        submit = conversation.steer if body.steer else conversation.submit
        prompt_request = submit(body.prompt, identity, images)
        headers = {updates.CLIENT_HEADER: client, updates.REQUEST_HEADER: prompt_request.id}
        if body.stream:
            follow = partial(watch_request, conversation.log, prompt_request, start)
            return _followed(conversation, identity, follow, context, headers)
        if body.in_background:
            position = conversation.queue.position(prompt_request)
            answer = {**prompt_request.to_json(), "position": position, "client": client}
            return responses.JsonResponse(answer, HTTPStatus.ACCEPTED, headers)
        await responses.while_connected(request.receive, prompt_request.done.wait())
        if prompt_request.error is not None:
            raise prompt_request.error
        return responses.JsonResponse(prompt_request.to_json(), headers=headers)

    @router.get("/request/{id}")
    async def read_request(id: str) -> responses.JsonResponse:
        """The state of a request, and its answer once it has ended. The last 200 are kept."""
        prompt_request = conversation.find(id)
        body = prompt_request.to_json()
        if prompt_request.error is not None:
            error = to_api_error(prompt_request.error, conversation.backend.info.context_size)
            body |= error_body(error)
        return responses.JsonResponse(
            {**body, "position": conversation.queue.position(prompt_request)}
        )

    @router.delete("/request/{id}")
    async def cancel_request(id: str) -> responses.JsonResponse:
        """Withdraw a waiting request, or stop the running one; 409 if it has ended.

        202: the running one ends as soon as its work stops; then `response_complete` is sent.
        """
        prompt_request = conversation.cancel(id)
        is_over = prompt_request.done.is_set()
        status = HTTPStatus.OK if is_over else HTTPStatus.ACCEPTED
        return responses.JsonResponse(prompt_request.to_json(), status)


def _add_updates(router: APIRouter, conversation: SharedSession, context: ServerContext) -> None:
    """Add the stream of all updates."""

    @router.get("/updates", response_class=Response, responses=responses.STREAMED)
    async def read_updates(request: Request) -> Response:
        """All updates as events; `Last-Event-ID` or `?after=` resumes after an id.

        With `X-Client-ID` (or `?client=`), the client's own prompts are left out and its own
        approvals are included.
        """
        client = _named_client(request) or _new_client()
        identity = _identity(request, client)
        after = request.headers.get(updates.RESUME_HEADER) or request.query_params.get("after", "")
        follow = partial(watch, conversation, identity, after)
        headers = {updates.CLIENT_HEADER: client}
        return _followed(conversation, identity, follow, context, headers)


def _add_session(router: APIRouter, conversation: SharedSession) -> None:
    """Add the routes that read the session and its context."""

    @router.get("/session")
    async def read_session(request: Request) -> responses.JsonResponse:
        """The session: messages, model, context, the running request, the queue, the update id.

        The updates after `update_id` continue exactly this state.
        """
        return responses.JsonResponse(
            snapshot(conversation, _identity(request, _named_client(request)))
        )

    @router.get("/context")
    async def read_context() -> responses.JsonResponse:
        """The tokens of each part of the next prompt, those read so far, and the context's size.

        `exact` is false for estimates.
        """
        return responses.JsonResponse((await conversation.measure()).to_json())


def _add_saved_sessions(router: APIRouter, conversation: SharedSession) -> None:
    """Add the routes that list and resume saved sessions."""

    @router.get("/sessions")
    async def list_sessions() -> responses.JsonResponse:
        """The newest saved sessions of the directory; `current` marks the one that is served."""
        summaries = await asyncio.to_thread(conversation.saved_sessions, MAX_SESSIONS)
        sessions = [_session_to_json(summary, conversation) for summary in summaries]
        return responses.JsonResponse({"sessions": sessions})

    @router.post("/sessions/{id}")
    async def resume_session(id: str) -> responses.JsonResponse:
        """Serve a saved session in place of this one, for all clients; 409 while a request runs.

        Every client gets a `snapshot`.
        """
        await conversation.resume(id)
        return responses.JsonResponse({"update_id": conversation.log.id_of(conversation.log.last)})


def _add_commands(
    router: APIRouter, conversation: SharedSession, context: ServerContext, audit: AuditLog
) -> None:
    """Add the routes for commands; `audit` gets a line for each."""

    @router.post("/command")
    async def run_command(
        request: Request, body: Annotated[CommandBody, context.bodies.of(CommandBody)]
    ) -> responses.JsonResponse:
        """Run a command of the conversation, such as `/undo`; 409 while a request runs.

        A command that changes files or the approval mode needs a key with the scope `approve`. So
        does `!LINE`, which runs a line in the server's shell until its end or until the client
        hangs up.
        """
        command, argument = named_command(body.command)
        with noted_command(audit, command.name, argument):
            if command.approves(argument) and not key_has(KeyScope.APPROVE):
                message = "The API key does not have the scope that this command needs: approve"
                raise ApiError(403, message, "insufficient_scope")
            work = conversation.command(body.command)
            # one that changes the conversation goes on when its client hangs up
            ends_with_client = command.name in OWN_COMMANDS
            output = await (
                responses.while_connected(request.receive, work) if ends_with_client else work
            )
        return responses.JsonResponse({"command": command.name, "content": output})

    @router.post("/clear")
    async def clear_session() -> responses.JsonResponse:
        """Remove all messages; 409 while a request runs or waits."""
        with noted_command(audit, "clear", ""):
            conversation.clear()
        return responses.JsonResponse({"update_id": conversation.log.id_of(conversation.log.last)})


def _add_approvals(router: APIRouter, conversation: SharedSession, context: ServerContext) -> None:
    """Add the route that answers questions about calls."""

    @router.post("/approvals/{id}")
    async def decide_approval(
        id: str, request: Request, body: Annotated[DecisionBody, context.bodies.of(DecisionBody)]
    ) -> responses.JsonResponse:
        """Answer an `approval_needed`; only the client that sent the request may do this.

        With `always` the rules in the question are stored.
        """
        client = _identity(request, _named_client(request))
        key = record_of(request.scope).owner or NO_KEY
        approval = body.approval(by=key)
        conversation.approver.decide(id, client, approval)
        return responses.JsonResponse({"id": id, "decision": body.decision})


def _session_to_json(summary: SessionSummary, conversation: SharedSession) -> JsonObject:
    """A saved session in a list; `current` tells whether it is the one that is served."""
    return {
        "id": summary.id,
        "title": summary.title[:MAX_TITLE],
        "messages": summary.messages,
        "updated": summary.updated.isoformat(timespec="seconds"),
        "current": summary.id == conversation.session.id,
    }


def _named_client(request: Request) -> str:
    """The client's own name, "" if it has none; raises ApiError for one that can't be a header."""
    name = request.headers.get(updates.CLIENT_HEADER) or request.query_params.get("client", "")
    if name and not _CLIENT_ID.fullmatch(name):
        message = (
            f"{updates.CLIENT_HEADER} must be 1 to 128 printable ASCII characters without spaces."
        )
        raise ApiError(400, message, "invalid_value", updates.CLIENT_HEADER)
    return name


def _new_client() -> str:
    """A name for a client that has none."""
    return f"client_{secrets.token_hex(12)}"


def _identity(request: Request, client: str) -> str:
    """The identity of a client: equal names under two keys are two clients."""
    owner = record_of(request.scope).owner
    return f"{owner}\n{client}" if owner else client


def _followed(
    conversation: SharedSession,
    identity: str,
    follow: Callable[[], AsyncGenerator[str]],
    context: ServerContext,
    headers: dict[str, str],
) -> Response:
    """The response with the frames of `follow`, during which the client counts as present."""

    @asynccontextmanager
    async def open_frames() -> AsyncGenerator[responses.Frames]:
        with conversation.presence.listening(identity):
            async with aclosing(follow()) as frames:
                yield frames

    keepalive = context.settings.keepalive
    return responses.EventStreamResponse(open_frames, to_api_error, keepalive, late_headers=headers)

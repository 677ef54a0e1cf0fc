"""The application in front of the replicas: reads a request, and has a replica answer it."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from msgspec import structs
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from shepherd.affinity import Prefix, body_prefix, with_response
from shepherd.cli.deploy.replica import BEAT_SECONDS
from shepherd.cli.deploy.request import ReplicaReply, ReplicaRequest, is_for_all, merge_replies
from shepherd.errors import ShepherdError
from shepherd.server import record, responses
from shepherd.server.api import ErrorShapes
from shepherd.server.body import SMALL_BYTES, check_shape
from shepherd.server.errors import ApiError
from shepherd.server.openai_responses.requests import new_response_id
from shepherd.server.openai_responses.routes import PATH as RESPONSES_PATH

logger = logging.getLogger("shepherd.server")

MAX_ATTEMPTS = 2
"""A request whose replica died before the first byte of the answer goes to one other replica."""

SILENCE_SECONDS = 4 * BEAT_SECONDS
"""A replica that does not beat for this time is stuck; Ray would notice it much later."""

RETRY_SECONDS = 1
_BUFFER_FACTOR = 16
"""All bodies that are held at one time are at most this many times the largest one."""

STREAM_TYPES = ("text/event-stream", "application/x-ndjson")
_COMMENTS = re.compile(rb"(?::[^\n]*\n|\n)*")
_RAY_HEADER = b"x-request-id"
"""Ray's proxy sets this header of answers to the id that it has given to the request."""


class ReplicaLostError(ShepherdError):
    """The replica of a request has died."""


class ReplicasBusyError(ShepherdError):
    """No replica takes the request: too many wait, or none is left."""


class Replicas(Protocol):
    """The replicas behind an ingress; both methods raise the two errors of this module."""

    def send(self, request: ReplicaRequest) -> AsyncGenerator[Sequence[Message]]:
        """The messages of the answer of the replica that the router chooses."""
        ...

    async def send_to_all(self, request: ReplicaRequest) -> Sequence[ReplicaReply]:
        """The answers of all replicas."""
        ...


class Ingress:
    """An ASGI application; it leaves keys, limits and all errors of requests to the replicas.

    A body beyond `max_body_bytes` is cut after one byte more, which a replica refuses.
    """

    def __init__(
        self, replicas: Replicas, errors: ErrorShapes, max_body_bytes: int, addresses: Sequence[str]
    ) -> None:
        self._replicas = replicas
        self._errors = errors
        self._limit = max_body_bytes
        self._addresses = addresses
        self._buffered = 0
        """Bytes of all bodies that are held now, from their reading to the end of their answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; the record is for the shape of errors of this process."""
        with record.recording(self._errors.record("", scope["path"], scope["headers"]), scope):
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a request, and have it answered; its body counts as held until then."""
        body = bytearray()
        reply = ReplyWriter(scope, receive, send)
        try:
            is_whole = await self._read_body(receive, body)
            if not is_whole:
                return
            await self._answer(await _request(scope, bytes(body)), reply)
        except ReplicasBusyError as error:
            await reply.fail(_unavailable(f"{error} Try again later.", "replicas_busy"))
        finally:
            self._buffered -= len(body)

    async def _answer(self, request: ReplicaRequest, reply: "ReplyWriter") -> None:
        """Send the answer of one replica, or of all; another one may replace one that dies.

        Raises ReplicasBusyError.
        """
        if is_for_all(request):
            replies = await self._replicas.send_to_all(request)
            if not replies:
                raise ReplicasBusyError("There is no replica at the moment.")
            await reply.send_whole(merge_replies(request.path, replies, self._addresses))
            return
        for attempt in range(1, MAX_ATTEMPTS + 1):
            # a request may also be silent because it waits in Ray's queue: the last has no limit
            patience = SILENCE_SECONDS if attempt < MAX_ATTEMPTS else None
            try:
                async with aclosing(self._replicas.send(request)) as batches:
                    while (messages := await _next(batches, patience)) is not None:
                        for message in messages:
                            await reply.send(message)
            except ReplicaLostError as error:
                # what the client has of an answer is not what another replica would write
                if attempt < MAX_ATTEMPTS and not reply.has_content:
                    logger.warning("%s is tried again: %s", request.path, error)
                    request = structs.replace(request, prefix=Prefix())  # not there again
                    continue
                logger.error("%s ends: %s", request.path, error)
                moment = "before it answered, and so did the next one"
                if reply.has_content:
                    moment = "while it answered"
                message = f"The replica of this request ended {moment}. Try again."
                await reply.fail(_unavailable(message, "replica_lost"))
            return

    async def _read_body(self, receive: Receive, body: bytearray) -> bool:
        """Fill `body`; returns False if the client left."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            room = self._limit + 1 - len(body)  # one byte more, so that a replica refuses it
            chunk: bytes = message.get("body", b"")[:room]
            if self._buffered + len(chunk) > _BUFFER_FACTOR * self._limit:
                raise ReplicasBusyError("Too many large requests are being read.")
            body += chunk
            self._buffered += len(chunk)
            if not message.get("more_body", False) or len(body) > self._limit:
                return True


async def _next(
    batches: AsyncGenerator[Sequence[Message]], patience: float | None
) -> Sequence[Message] | None:
    """The next messages, None at the end; raises ReplicaLostError if the replica is stuck."""
    try:
        async with asyncio.timeout(patience):
            return await anext(batches, None)
    except TimeoutError as error:
        raise ReplicaLostError("The replica is silent.") from error


async def _request(scope: Scope, body: bytes) -> ReplicaRequest:
    """The request for a replica; the id of a new response is chosen here, to be recognized."""
    prefix = await _prefix(scope, body)
    response_id = ""
    if prefix.hashes and scope["path"] == RESPONSES_PATH:
        response_id = new_response_id()
        prefix = with_response(prefix, response_id)
    return ReplicaRequest.of(scope, body, prefix, response_id)


async def _prefix(scope: Scope, body: bytes) -> Prefix:
    """The prefix of a request's prompt; an empty one for a body that a replica will refuse."""
    if scope["method"] != "POST" or not body:
        return Prefix()
    if len(body) <= SMALL_BYTES:
        return _parse_prefix(body)
    return await asyncio.to_thread(_parse_prefix, body)  # other requests would wait for it


def _parse_prefix(body: bytes) -> Prefix:
    """The prefix of the prompt in a body; an empty one if it is not JSON."""
    try:
        check_shape(body)
        return body_prefix(from_json(body, allow_inf_nan=False))
    except (ApiError, ValueError):
        return Prefix()


def _unavailable(message: str, code: str) -> ApiError:
    """An error after which the client may try again."""
    return ApiError(503, message, code, headers={"Retry-After": str(RETRY_SECONDS)})


class ReplyWriter:
    """Sends one answer; until it has content, an answer of another replica can continue it.

    The start waits for the first part of the body. Comments that keep a stream open are no content.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.has_content = False
        self._scope = scope
        self._receive = receive
        self._send = send
        self._waiting_start: Message | None = None
        self._sent_status = 0  # 0: no start was sent
        self._is_stream = False
        self._has_ended = False

    async def send(self, message: Message) -> None:
        """Send a message of an ASGI application."""
        if message["type"] == "http.response.start":
            self._waiting_start = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if not body and more:  # it would begin the answer, which another replica may have to give
            return
        if not await self._send_start():
            return
        is_comment = self._is_stream and more and _COMMENTS.fullmatch(body) is not None
        self.has_content = self.has_content or not is_comment
        self._has_ended = not more
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def send_whole(self, reply: ReplicaReply) -> None:
        """Send an answer that is complete."""
        headers = list(reply.headers)
        await self.send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": reply.body})

    async def fail(self, error: ApiError) -> None:
        """End the answer with an error in the shape of its API."""
        if self._has_ended:  # the client has a whole answer
            return
        if not self._sent_status:  # the client has nothing yet
            await responses.ErrorResponse(error)(self._scope, self._receive, self._send)
        elif self._is_stream:
            self._has_ended = self.has_content = True
            body = record.record_of(self._scope).error_event(error).encode()
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        else:
            raise ConnectionError(str(error))  # the connection is closed, so the client sees a cut

    async def _send_start(self) -> bool:
        """Send the waiting start; returns False after an error in a stream that is open."""
        start, self._waiting_start = self._waiting_start, None
        if start is None:  # it was sent before
            return not self._has_ended
        if self._sent_status:  # that of the replica that was lost
            if start["status"] == self._sent_status:  # only the same answer can continue it
                return True
            message = "The request failed when another replica tried it."
            await self.fail(ApiError(start["status"], message, "replica_lost"))
            return False
        headers = [pair for pair in start.get("headers", ()) if pair[0].lower() != _RAY_HEADER]
        media_type = Headers(raw=headers).get("content-type", "").partition(";")[0].strip()
        self._sent_status, self._is_stream = start["status"], media_type in STREAM_TYPES
        await self._send({**start, "headers": headers})
        return True

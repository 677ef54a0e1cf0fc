"""Writes the answer of a replica to the client, with another replica's in its place if need be."""

import re

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from shepherd.cli.deploy.request import ReplicaReply
from shepherd.server.errors import ApiError
from shepherd.server.record import record_of
from shepherd.server.responses import ErrorResponse

STREAM_TYPES = ("text/event-stream", "application/x-ndjson")
_COMMENTS = re.compile(rb"(?::[^\n]*\n|\n)*")
_RAY_HEADER = b"x-request-id"
"""Ray's proxy sets this header of answers to the id that it has given to the request."""


class ReplyWriter:
    """Sends one answer; until it has content, an answer of another replica can continue it.

    The start waits for the first part of the body. Comments that keep a stream open are no content.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.has_content = False
        self._scope = scope
        self._receive = receive
        self._send = send
        self._start: Message | None = None
        self._status = 0
        self._is_stream = False
        self._ended = False

    async def send(self, message: Message) -> None:
        """Send a message of an ASGI application."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if not body and more:
            return
        if not await self._send_start():
            return
        if not more or _COMMENTS.fullmatch(body) is None or not self._is_stream:
            self.has_content = True
        self._ended = not more
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def send_whole(self, reply: ReplicaReply) -> None:
        """Send an answer that is complete."""
        headers = list(reply.headers)
        await self.send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": reply.body})

    async def fail(self, error: ApiError) -> None:
        """End the answer with an error in the shape of its API."""
        if self._ended:
            return
        if not self._status:
            await ErrorResponse(error)(self._scope, self._receive, self._send)
        elif self._is_stream:
            await self._end(record_of(self._scope).error_event(error).encode())
        else:
            raise ConnectionError(str(error))  # the connection is closed, so the client sees a cut

    async def _send_start(self) -> bool:
        """Send the waiting start; returns False after an error in a stream that is open."""
        start, self._start = self._start, None
        if start is None:
            return not self._ended
        if self._status:
            if start["status"] == self._status:
                return True
            message = "The request failed when another replica tried it."
            await self.fail(ApiError(start["status"], message, "replica_lost"))
            return False
        headers = [pair for pair in start.get("headers", ()) if pair[0].lower() != _RAY_HEADER]
        media_type = Headers(raw=headers).get("content-type", "").partition(";")[0].strip()
        self._status, self._is_stream = start["status"], media_type in STREAM_TYPES
        await self._send({**start, "headers": headers})
        return True

    async def _end(self, body: bytes) -> None:
        self._ended = self.has_content = True
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

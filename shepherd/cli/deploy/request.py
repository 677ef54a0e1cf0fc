"""A request on its way from the router to a replica, and an answer on its way back."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Scope

from shepherd.affinity import Prefix
from shepherd.server.openai_responses.record import RESPONSE_ID
from shepherd.tasks import end_tasks

HANG_UP_SECONDS = 5.0
"""The time that an application gets to end by itself after its client has left."""

_SERVER = ("shepherd", 0)
"""The server's address in replicas; it has a port, because no request comes over a Unix socket."""


@dataclass(frozen=True, slots=True)
class ReplicaRequest:
    """An HTTP request with its body, and the prefix of its prompt.

    `response_id` is the id that its stored response gets, "" for the replica's choice.
    """

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    scheme: str
    body: bytes
    prefix: Prefix
    response_id: str = ""

    @classmethod
    def of(
        cls, scope: Scope, body: bytes, prefix: Prefix, response_id: str = ""
    ) -> "ReplicaRequest":
        """The request of an ASGI scope."""
        path: str = scope["path"]
        client = scope.get("client")
        return cls(
            method=scope["method"],
            path=path,
            raw_path=scope.get("raw_path") or path.encode(),
            query=scope["query_string"],
            headers=[(bytes(name), bytes(value)) for name, value in scope["headers"]],
            client=(str(client[0]), int(client[1])) if client else None,
            scheme=scope.get("scheme", "http"),
            body=body,
            prefix=prefix,
            response_id=response_id,
        )

    def scope(self) -> Scope:
        """An ASGI scope of its own."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": self.scheme,
            "path": self.path,
            "raw_path": self.raw_path,
            "query_string": self.query,
            "root_path": "",
            "headers": list(self.headers),
            "client": self.client,
            "server": _SERVER,
            "state": {RESPONSE_ID: self.response_id} if self.response_id else {},
        }


@dataclass(frozen=True, slots=True)
class ReplicaReply:
    """The whole answer of one replica."""

    replica: str
    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


async def run_app(app: ASGIApp, request: ReplicaRequest) -> AsyncGenerator[list[Message]]:
    """The messages of an application's answer, those that are ready together.

    If the generator is closed or cancelled, the application sees that its client has left.
    """
    exchange = _Exchange(request.body)
    work = asyncio.ensure_future(app(request.scope(), exchange.receive, exchange.send))
    work.add_done_callback(lambda _: exchange.news.set())
    try:
        while not work.done() or exchange.messages:
            await exchange.news.wait()
            exchange.news.clear()
            if exchange.messages:
                messages, exchange.messages = exchange.messages, []
                yield joined(messages)
        await work
    finally:
        exchange.left.set()
        if not work.done():
            await asyncio.wait({work}, timeout=HANG_UP_SECONDS)
            await end_tasks(work)


async def whole_reply(app: ASGIApp, request: ReplicaRequest, replica: str) -> ReplicaReply:
    """The answer of an application that ends by itself."""
    status, headers, body = 500, list[tuple[bytes, bytes]](), bytearray()
    async for messages in run_app(app, request):
        for message in messages:
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message.get("headers", ()))
            else:
                body += message.get("body", b"")
    return ReplicaReply(replica, status, headers, bytes(body))


def joined(messages: Sequence[Message]) -> list[Message]:
    """The same answer with one message for bodies that follow each other."""
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        if last and last["type"] == message["type"] == "http.response.body":
            last["body"] = last.get("body", b"") + message.get("body", b"")
            last["more_body"] = message.get("more_body", False)
        else:
            result.append(dict(message))
    return result


class _Exchange:
    """The two ends of an application: its request, and the messages that it has sent."""

    def __init__(self, body: bytes) -> None:
        self.messages: list[Message] = []
        self.news = asyncio.Event()
        self.left = asyncio.Event()
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        self.news.set()

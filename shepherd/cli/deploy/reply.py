"""Writes the answer of a replica to the client, with another replica's in its place if need be."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from shepherd.cli.deploy.request import ReplicaReply, ReplicaRequest
from shepherd.json_text import to_json
from shepherd.server.access.paths import ADMIN_PREFIX, METRICS_PATH
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


_OF_WORK = re.compile(r"(?:/v1)?/responses/[^/]+(?:/cancel)?|/v1/approvals/.+", re.ASCII)
"""Paths of work that one replica does; the others answer that there is none."""

_STREAM = b"stream=true"

_FAMILY = re.compile(r"# (?:HELP|TYPE|UNIT) (\S+)")
_END = "# EOF"
_LENGTH = b"content-length"


def is_for_all(request: ReplicaRequest) -> bool:
    """Whether all replicas get a request; each of their answers must end by itself."""
    path = request.path
    if path == METRICS_PATH or path.startswith(f"{ADMIN_PREFIX}/"):
        return True
    return _OF_WORK.fullmatch(path) is not None and _STREAM not in request.query


def merge_replies(
    path: str, replies: Sequence[ReplicaReply], addresses: Sequence[str]
) -> ReplicaReply:
    """One answer out of those of all replicas, of which there is at least one.

    Where one replica does the work, a success counts; everywhere else, the first refusal.
    `addresses` are those at which the whole deployment is served.
    """
    failed = [reply for reply in replies if reply.status >= 400]
    if _OF_WORK.fullmatch(path):
        return next((reply for reply in replies if reply.status < 400), replies[0])
    if failed:
        return failed[0]
    if path == METRICS_PATH:
        return _with_body(replies[0], merge_metrics(replies))
    merged = merge_states([json.loads(reply.body) for reply in replies])
    if "addresses" in merged:
        merged["addresses"] = list(addresses)
    return _with_body(replies[0], to_json(merged))


def merge_metrics(replies: Sequence[ReplicaReply]) -> str:
    """The measurements of all replicas, each with a label that names its replica."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    ended = False
    for number, reply in enumerate(replies):
        family = ""
        for line in reply.body.decode().splitlines():
            if line == _END:
                ended = True
            elif (match := _FAMILY.match(line)) is not None:
                family = match[1]
                head, _ = families.setdefault(family, ([], []))
                if line not in head:
                    head.append(line)
            elif line and not line.startswith("#"):
                _, samples = families.setdefault(family, ([], []))
                samples.append(_labelled(line, reply.replica or str(number)))
    lines = [line for head, samples in families.values() for line in (*head, *samples)]
    return "\n".join([*lines, *([_END] if ended else []), ""])


def _labelled(sample: str, replica: str) -> str:
    brace, space = sample.find("{"), sample.find(" ")
    if 0 <= brace < space:
        label = f'replica="{replica}",'
        rest = sample[brace + 1 :]
        return f"{sample[: brace + 1]}{label if rest[0] != '}' else label[:-1]}{rest}"
    return f'{sample[:space]}{{replica="{replica}"}}{sample[space:]}'


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Answers of `/admin`: numbers of requests add up, lists are joined without doubles."""
    merged: dict[str, Any] = dict(states[0])
    for name, value in merged.items():
        values = [state[name] for state in states if name in state]
        if name == "status":
            merged[name] = next((other for other in values if other != "ready"), value)
        elif name == "uptime_seconds":
            merged[name] = max(values)
        elif name in ("pid", "version"):
            merged[name] = ", ".join(_unique(map(str, values)))
        elif isinstance(value, list):
            lists: list[list[Any]] = values
            merged[name] = [part for part_list in lists for part in part_list]
            if name != "models":
                merged[name] = list(_unique(map(str, merged[name])))
        elif isinstance(value, dict):
            merged[name] = merge_states(values)
        elif isinstance(value, int):
            merged[name] = sum(values)
    return merged


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _with_body(reply: ReplicaReply, text: str) -> ReplicaReply:
    body = text.encode()
    headers = [pair for pair in reply.headers if pair[0].lower() != _LENGTH]
    headers.append((_LENGTH, str(len(body)).encode()))
    return replace(reply, headers=headers, body=body)

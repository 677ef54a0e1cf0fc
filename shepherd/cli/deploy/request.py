"""A request on its way from the router to a replica, and an answer on its way back."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import Scope

from shepherd.affinity import Prefix
from shepherd.json_text import to_json
from shepherd.server.access.paths import ADMIN_PREFIX, METRICS_PATH
from shepherd.server.openai_responses.record import RESPONSE_ID

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

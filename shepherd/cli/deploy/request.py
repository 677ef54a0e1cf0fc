"""A request on its way from the router to a replica, and an answer on its way back."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

from msgspec import Struct, structs
from prometheus_client import parser as text_format
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import parser as openmetrics_format
from prometheus_client.registry import Collector
from starlette.types import Scope

from shepherd import affinity, json_text
from shepherd.server.access.paths import ADMIN_PREFIX, KEYS_PATH, METRICS_PATH, QUEUE_PATH
from shepherd.server.openai_responses.requests import RESPONSE_ID

_SERVER = ("shepherd", 0)
"""The server's address in replicas; it has a port, because no request comes over a Unix socket."""


_TRAVELLING = ("method", "scheme", "path", "raw_path", "query_string", "headers", "client")
"""The parts of a scope that are plain data, so that they can go to another process."""


class ReplicaRequest(Struct, frozen=True):
    """An HTTP request: its ASGI scope as far as it travels, its body, and its prompt's prefix.

    `response_id` is the id that its stored response gets, "" for the replica's choice.
    """

    plain_scope: Mapping[str, Any]
    body: bytes
    prefix: affinity.Prefix
    response_id: str = ""

    @classmethod
    def of(
        cls, scope: Scope, body: bytes, prefix: affinity.Prefix, response_id: str = ""
    ) -> "ReplicaRequest":
        """The request of an ASGI scope."""
        plain_scope = {name: scope[name] for name in _TRAVELLING if name in scope}
        return cls(plain_scope, body, prefix, response_id)

    @property
    def path(self) -> str:
        """The path without the query."""
        return cast(str, self.plain_scope["path"])

    def scope(self) -> Scope:
        """An ASGI scope of its own."""
        return {
            **self.plain_scope,
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "root_path": "",
            "server": _SERVER,
            "state": {RESPONSE_ID: self.response_id} if self.response_id else {},
        }


class ReplicaReply(Struct, frozen=True):
    """The whole answer of one replica."""

    replica: str
    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


_OF_ONE_WORK = re.compile(r"(?:/v1)?/responses/[^/]+(?:/cancel)?|/v1/approvals/.+", re.ASCII)
"""Paths of work that one replica does; the others answer that there is none."""

_STREAM = b"stream=true"

_LENGTH = b"content-length"


def is_for_all(request: ReplicaRequest) -> bool:
    """Whether all replicas get a request; each of their answers must end by itself.

    They share their keys, which one replica lists and changes.
    """
    path = request.path
    if path in (METRICS_PATH, QUEUE_PATH) or path.startswith(f"{ADMIN_PREFIX}/"):
        return not path.startswith(KEYS_PATH)
    if _OF_ONE_WORK.fullmatch(path) is None:
        return False
    return _STREAM not in request.plain_scope["query_string"]  # the others would wait for its end


def merge_replies(
    path: str, replies: Sequence[ReplicaReply], addresses: Sequence[str]
) -> ReplicaReply:
    """One answer out of those of all replicas, of which there is at least one.

    Where one replica does the work, a success counts; everywhere else, the first refusal.
    `addresses` are those at which the whole deployment is served.
    """
    failed = [reply for reply in replies if reply.status >= HTTPStatus.BAD_REQUEST]
    if _OF_ONE_WORK.fullmatch(path):
        return next((reply for reply in replies if reply not in failed), replies[0])
    if failed:
        return failed[0]
    if path == METRICS_PATH:
        return _with_body(replies[0], merge_metrics(replies))
    merged = merge_states([json.loads(reply.body) for reply in replies])
    if "addresses" in merged:
        merged["addresses"] = list(addresses)
    return _with_body(replies[0], json_text.to_json(merged).encode())


def merge_metrics(replies: Sequence[ReplicaReply]) -> bytes:
    """The measurements of all replicas, each with a label that names its replica."""
    # all replicas chose the same format, because they got the same request
    media_type = dict(replies[0].headers).get(b"content-type", b"").decode()
    parser: Any = openmetrics_format if "openmetrics" in media_type else text_format
    families: dict[str, Metric] = {}
    for reply in replies:
        for family in parser.text_string_to_metric_families(reply.body.decode()):
            merged = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            # a label of its own keeps the samples of two replicas apart
            merged.samples += [
                sample._replace(labels={"replica": reply.replica, **sample.labels})
                for sample in family.samples
            ]
    encode, _ = choose_encoder(media_type)
    return encode(_Families(families.values()))


class _Families(Collector):
    """Families of measurements that are there already, as prometheus_client's encoders take."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Answers of `/admin`: numbers of requests add up, lists are joined without doubles."""
    merged: dict[str, Any] = {}
    for state in states:  # one may lack what others have, as the seconds of a key
        merged = {**state, **merged}
    for name, value in merged.items():
        values = [state[name] for state in states if name in state]
        if name == "status":  # the deployment is as ready as the least ready replica
            merged[name] = next((other for other in values if other != "ready"), value)
        elif name == "uptime_seconds":
            merged[name] = max(values)
        elif name in ("pid", "version"):
            merged[name] = ", ".join(dict.fromkeys(map(str, values)))
        elif isinstance(value, list):
            items: list[Any] = [item for items_of_one in values for item in items_of_one]
            # each replica has its own models, log lines and requests; other lists are of names
            is_own = name in ("models", "lines", "requests")
            merged[name] = items if is_own else [*dict.fromkeys(map(str, items))]
        elif isinstance(value, dict):
            merged[name] = merge_states(values)
        elif isinstance(value, int | float):
            merged[name] = sum(values)
    return merged


def _with_body(reply: ReplicaReply, body: bytes) -> ReplicaReply:
    """The reply with another body, and its length."""
    headers = [pair for pair in reply.headers if pair[0].lower() != _LENGTH]
    headers.append((_LENGTH, str(len(body)).encode()))
    return structs.replace(reply, headers=headers, body=body)

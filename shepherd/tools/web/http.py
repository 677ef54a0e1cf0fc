"""HTTP for models."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, field_validator

from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.text import counted, plain_text
from shepherd.tools.web.exchange import Reply, Request, exchange, parse_url

_FORBIDDEN_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
)


class GetArguments(Arguments):
    """Which page."""

    url: str


class RequestArguments(Arguments):
    """Any request."""

    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"],
        WithJsonSchema({"type": "string"}),
    ]
    url: str
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    body: str = ""

    @field_validator("method", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("body", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return json.dumps(value) if isinstance(value, (dict, list)) else value

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if name.lower() in _FORBIDDEN_HEADERS:
                raise ValueError(f"{name} is set by the tool itself")
            if not (name + value).isprintable() or not (name + value).isascii():
                raise ValueError(f"{name} must be one line of ASCII")
        return headers


class HttpGet(Tool[GetArguments]):
    """A page."""

    name = "http_get"
    description = "Fetch a URL."
    arguments = GetArguments

    def accesses(self, arguments: GetArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.NETWORK, str(parse_url(arguments.url)))]

    def preview(self, arguments: GetArguments, context: ToolContext) -> str:
        return f"GET {parse_url(arguments.url)}"

    async def run(self, arguments: GetArguments, context: ToolContext) -> ToolResult:
        return _result(await exchange(Request("GET", arguments.url), context))


class HttpRequest(Tool[RequestArguments]):
    """Any request."""

    name = "http_request"
    description = "Send an HTTP request."
    arguments = RequestArguments

    def accesses(self, arguments: RequestArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.NETWORK, str(parse_url(arguments.url)))]

    def preview(self, arguments: RequestArguments, context: ToolContext) -> str:
        headers = [f"{name}: {value}" for name, value in arguments.headers.items()]
        first = f"{arguments.method} {parse_url(arguments.url)}"
        return "\n".join([first, *headers, *(["", arguments.body] if arguments.body else [])])

    async def run(self, arguments: RequestArguments, context: ToolContext) -> ToolResult:
        headers, body = {k.lower(): v for k, v in arguments.headers.items()}, arguments.body
        if body and "content-type" not in headers:
            headers["content-type"] = "application/json" if _is_json(body) else "text/plain"
        request = Request(arguments.method, arguments.url, headers, body.encode())
        return _result(await exchange(request, context))


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), (dict, list))
    except ValueError:
        return False


def _result(reply: Reply) -> ToolResult:
    lines = [f"HTTP {reply.status} {reply.content_type}".rstrip()]
    if 300 <= reply.status < 400 and reply.location:
        lines.append(f"Location: {reply.location}")
    body = _text(reply)
    if body:
        lines += ["", body]
    if reply.cut:
        lines.append(f"[body cut at {len(reply.data)} bytes]")
    return ToolResult("\n".join(lines), ok=reply.status < 400)


def _text(reply: Reply) -> str:
    if b"\0" in reply.data[:8192] and not (reply.charset or "").lower().startswith("utf-16"):
        return f"(binary body, {counted(len(reply.data), 'byte')})"
    try:
        text = reply.data.decode(reply.charset or "utf-8", "replace")
    except LookupError:
        text = reply.data.decode("utf-8", "replace")
    return plain_text(text).strip("\n")

"""The tools that let models use HTTP."""

import codecs
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from shepherd.tools.base import Access, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.text import one_line, plain_text, pluralize

if TYPE_CHECKING:  # each call imports what it needs of the protocol
    from shepherd.tools.web.messages import Reply

_MAX_HEADER = 500
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHARSET = re.compile(
    r"ascii|utf-(8|16|32)(-(be|le|sig))?|iso\d+-\d+|cp\d+|koi8-[rtu]|mac-\w+|gb\w+|big5\w*"
    r"|shift_jis\w*|euc_\w+|iso2022_\w+|johab|hz|tis-620|kz1048|ptcp154"
)
"""Names of Python's codecs that are character sets; others are slow or don't decode to text."""
_FORBIDDEN_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
    | {"expect", "keep-alive", "proxy-authorization", "proxy-connection"}
)


class GetArguments(Arguments):
    """The URL to fetch."""

    url: str


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a header's name")
        if name.lower() in _FORBIDDEN_HEADERS:
            raise ValueError(f"{name} is set by the tool itself")
        if not value.isprintable() or not value.isascii():
            raise ValueError(f"{name} must be one line of ASCII")
    return headers


class RequestArguments(Arguments):
    """The request to send."""

    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"],
        BeforeValidator(_upper),
        WithJsonSchema({"type": "string"}),
    ]
    url: str
    headers: Annotated[dict[str, str], AfterValidator(_sendable)] = {}
    body: Annotated[str, BeforeValidator(_as_text)] = ""


class HttpGet(Tool[GetArguments]):
    """Fetches a URL."""

    name = "http_get"
    description = "Fetch a URL."
    arguments = GetArguments

    def accesses(self, arguments: GetArguments, context: ToolContext) -> list[Access]:
        return _accesses(arguments.url, context)

    def preview(self, arguments: GetArguments, context: ToolContext) -> str:
        return _first_line("GET", arguments.url)

    async def run(self, arguments: GetArguments, context: ToolContext) -> ToolResult:
        return await _exchanged(context, "GET", arguments.url)


class HttpRequest(Tool[RequestArguments]):
    """Sends any HTTP request."""

    name = "http_request"
    description = "Send an HTTP request."
    arguments = RequestArguments

    def accesses(self, arguments: RequestArguments, context: ToolContext) -> list[Access]:
        return _accesses(arguments.url, context)

    def preview(self, arguments: RequestArguments, context: ToolContext) -> str:
        headers = [f"{name}: {value}" for name, value in arguments.headers.items()]
        first = _first_line(arguments.method, arguments.url)
        return "\n".join([first, *headers, *(["", arguments.body] if arguments.body else [])])

    async def run(self, arguments: RequestArguments, context: ToolContext) -> ToolResult:
        headers, body = {k.lower(): v for k, v in arguments.headers.items()}, arguments.body
        if body and "content-type" not in headers:
            headers["content-type"] = "application/json" if _is_json(body) else "text/plain"
        return await _exchanged(context, arguments.method, arguments.url, headers, body.encode())


async def _exchanged(
    context: ToolContext,
    method: str,
    url: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> ToolResult:
    from shepherd.tools.web.exchange import exchange
    from shepherd.tools.web.messages import Request

    return _result(await exchange(Request(method, url, headers or {}, body), context))


def _first_line(method: str, url: str) -> str:
    from shepherd.tools.web.urls import parse_url

    return f"{method} {parse_url(url)}"


def _accesses(text: str, context: ToolContext) -> list[Access]:
    from shepherd.tools.web.addresses import refuse_private
    from shepherd.tools.web.urls import network_access, parse_url

    url = parse_url(text)
    if not context.allow_private_hosts:
        refuse_private(url.host)
    return [network_access(url)]


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), (dict, list))
    except ValueError:
        return False


def _result(reply: "Reply") -> ToolResult:
    lines = [f"HTTP {reply.status} {_header(reply.content_type)}".rstrip()]
    if 300 <= reply.status < 400 and reply.location:
        lines.append(f"Location: {_header(reply.location)}")
    body = _text(reply)
    if body:
        lines += ["", body]
    if reply.body.cut:
        lines.append(f"[body cut at {len(reply.body.data)} bytes]")
    return ToolResult("\n".join(lines), ok=reply.status < 400)


def _header(value: str) -> str:
    """A header of the reply as one line of ASCII."""
    line = one_line(value.encode("ascii", "backslashreplace").decode("ascii"))
    return line[:_MAX_HEADER] + "…" if len(line) > _MAX_HEADER else line


def _text(reply: "Reply") -> str:
    data, size = reply.body.data, pluralize(len(reply.body.data), "byte")
    if reply.body.coding:
        return f"(body encoded as {_header(reply.body.coding)}, {size})"
    if b"\0" in data[:8192] and not (reply.charset or "").lower().startswith("utf-16"):
        return f"(binary body, {size})"
    return plain_text(data.decode(_codec(reply.charset), "replace")).strip("\n")


def _codec(charset: str | None) -> str:
    """The codec for a charset; UTF-8 if it is missing, unknown or not a character set."""
    try:
        name = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    is_charset = _CHARSET.fullmatch(name) is not None
    return name if is_charset else "utf-8"

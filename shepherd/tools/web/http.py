"""The tools that let models use HTTP."""

import asyncio
import codecs
import json
import os
import re
import ssl
import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Struct, field
from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from shepherd.errors import ToolError
from shepherd.tools.access import Access
from shepherd.tools.text import one_line, plain_text, pluralize
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult, Traits
from shepherd.tools.web import urls

if TYPE_CHECKING:
    import httpx


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
    """The headers; raises ValueError for one that could change what the request is."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a header's name")
        if name.lower() in _FORBIDDEN_HEADERS:
            raise ValueError(f"{name} is set by the tool itself")
        # a line feed would begin another header
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
    traits = Traits("fetch", "Fetch", connects_in_plan=True)
    description = "Fetch a URL."
    arguments = GetArguments

    def accesses(self, arguments: GetArguments, context: ToolContext) -> list[Access]:
        return _accesses(arguments.url, context)

    def preview(self, arguments: GetArguments, context: ToolContext) -> str:
        return _first_line("GET", arguments.url)

    async def run(self, arguments: GetArguments, context: ToolContext) -> ToolResult:
        return _result(await exchange(Request("GET", arguments.url), context))


class HttpRequest(Tool[RequestArguments]):
    """Sends any HTTP request."""

    name = "http_request"
    traits = Traits("fetch", "Request")
    description = "Send an HTTP request."
    arguments = RequestArguments

    def accesses(self, arguments: RequestArguments, context: ToolContext) -> list[Access]:
        return _accesses(arguments.url, context)

    def preview(self, arguments: RequestArguments, context: ToolContext) -> str:
        headers = [f"{name}: {value}" for name, value in arguments.headers.items()]
        first = _first_line(arguments.method, arguments.url)
        return "\n".join([first, *headers, *(["", arguments.body] if arguments.body else [])])

    async def run(self, arguments: RequestArguments, context: ToolContext) -> ToolResult:
        """Send the request, with a content type that fits the body, and show the reply."""
        headers, body = {k.lower(): v for k, v in arguments.headers.items()}, arguments.body
        if body and "content-type" not in headers:
            headers["content-type"] = "application/json" if _is_json(body) else "text/plain"
        request = Request(arguments.method, arguments.url, headers, body.encode())
        return _result(await exchange(request, context))


def _first_line(method: str, url: str) -> str:
    return f"{method} {urls.parse_url(url)}"


def _accesses(text: str, context: ToolContext) -> list[Access]:
    """The access to the URL; raises ToolError for a host that the settings never allow."""
    url = urls.parse_url(text)
    if not context.allow_private_hosts:
        urls.refuse_private(url.host)
    return [urls.network_access(url)]


def _is_json(text: str) -> bool:
    """Whether it is an object or an array; a number or a word is more likely plain text."""
    try:
        return isinstance(json.loads(text), (dict, list))
    except ValueError:
        return False


def _result(reply: "Reply") -> ToolResult:
    """The reply as a model reads it: `HTTP 200 text/html`, an empty line, and the body."""
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
    """The body as text, or a note about one that is none."""
    data, size = reply.body.data, pluralize(len(reply.body.data), "byte")
    if reply.body.coding:
        return f"(body encoded as {_header(reply.body.coding)}, {size})"
    is_utf16 = (reply.charset or "").lower().startswith("utf-16")  # its text is full of NUL bytes
    if b"\0" in data[:8192] and not is_utf16:
        return f"(binary body, {size})"
    return plain_text(data.decode(_codec(reply.charset), "replace")).strip("\n")


def _codec(charset: str | None) -> str:
    """The codec for a charset; UTF-8 if it is missing, unknown or not a character set."""
    try:
        name = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if _CHARSET.fullmatch(name) else "utf-8"


_GZIP_OR_ZLIB = zlib.MAX_WBITS + 32
_ZIPPED = frozenset({"gzip", "x-gzip", "deflate"})


class Body(Struct, frozen=True):
    """The first bytes; `cut` if there were more, `coding` if they could not be decoded."""

    data: bytes
    cut: bool = False
    coding: str = ""


async def read_body(chunks: AsyncIterator[bytes], coding: str, limit: int) -> Body:
    """At most `limit` bytes of the body that arrives as `chunks`, encoded by `coding`.

    Servers may compress although the request does not ask for it. At most `limit` bytes are
    unpacked. Raises ValueError if the body does not match the coding.
    """
    coding = coding.strip().lower()
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB) if coding in _ZIPPED else None
    data = bytearray()
    async for chunk in chunks:
        try:
            # a small chunk may unpack to gigabytes; one byte more than the limit tells a cut
            data += unpacker.decompress(chunk, limit + 1 - len(data)) if unpacker else chunk
        except zlib.error as error:
            raise ValueError(f"broken {coding} body") from error
        if len(data) > limit:
            break
    is_decoded = unpacker is not None or coding in ("", "identity")
    return Body(bytes(data[:limit]), len(data) > limit, "" if is_decoded else coding)


class Request(Struct, frozen=True):
    """A request; the names of its headers are in lower case."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


class Reply(Struct, frozen=True):
    """A reply, with headers as the server wrote them."""

    status: int
    content_type: str
    charset: str | None
    location: str
    body: Body


_MAX_REDIRECTS = 5
_CONNECT_TIMEOUT = 15.0
_OWN_HEADERS = {"user-agent": "shepherd", "accept": "*/*", "accept-encoding": "identity"}


async def exchange(request: Request, context: ToolContext) -> Reply:
    """The reply after redirects, with at most `context.output_bytes` of its body.

    A redirect that would carry a body or credentials to another origin is returned, not
    followed. Raises ToolError.
    """
    import httpx

    context.require(urls.network_access(urls.parse_url(request.url)))
    ssl_context = await asyncio.to_thread(httpx.create_ssl_context)
    for _ in range(_MAX_REDIRECTS + 1):
        reply = await _exchange_once(request, context, ssl_context)
        next_request = following(request, reply)
        if next_request is None:
            return reply
        await permit(next_request, request.url, context)
        request = next_request
    raise ToolError(f"too many redirects from {urls.parse_url(request.url).host}")


async def _exchange_once(
    request: Request, context: ToolContext, ssl_context: ssl.SSLContext
) -> Reply:
    """One request to a checked address, over a new connection.

    A reused connection or cookie of another host at the same address would undo the checks.
    """
    import httpx

    url = urls.parse_url(request.url)
    addresses = await urls.resolve_host(
        url.host, urls.port_of(url), allow_private=context.allow_private_hosts
    )
    problem: Exception | None = None
    for address in addresses:  # as browsers do: the next one if this one can't be reached
        try:
            async with httpx.AsyncClient(
                verify=ssl_context,
                trust_env=False,  # a proxy would resolve the name itself
                timeout=httpx.Timeout(context.timeout, connect=_CONNECT_TIMEOUT),
            ) as client:
                return await _send(client, request, url, address, context.output_bytes)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            problem = error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ToolError(f"cannot reach {url.host}: {_cause(error)}") from error
    raise ToolError(f"cannot reach {url.host}: {_cause(problem)}") from problem


async def _send(
    client: "httpx.AsyncClient", request: Request, url: "httpx.URL", address: str, limit: int
) -> Reply:
    """Send the request to the checked `address`, as if the name of the host had led there."""
    headers = {**_OWN_HEADERS, **request.headers, "host": url.netloc.decode("ascii")}
    outgoing = client.build_request(
        request.method,
        url.copy_with(host=address),
        headers=headers,
        content=request.body or None,
        extensions={"sni_hostname": url.host},  # the certificate must be that of the name
    )
    response = await client.send(outgoing, stream=True)
    try:
        coding = response.headers.get("content-encoding", "")
        body = await read_body(response.aiter_raw(), coding, limit)
    finally:
        await response.aclose()
    return Reply(
        response.status_code,
        response.headers.get("content-type", ""),
        response.charset_encoding,
        response.headers.get("location", ""),
        body,
    )


def _cause(error: BaseException | None) -> str:
    """A short reason: the system's, which is among the causes of httpx's error."""
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return "timed out"
    inner = error
    while inner is not None:
        if isinstance(inner, ssl.SSLCertVerificationError):
            return f"bad certificate: {inner.verify_message.rstrip('.')}"
        if isinstance(inner, OSError) and not isinstance(inner, ssl.SSLError) and inner.errno:
            return os.strerror(inner.errno).lower()
        inner = inner.__cause__ or inner.__context__
    return str(error) or type(error).__name__


_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE = frozenset({"GET", "HEAD"})


def following(request: Request, reply: Reply) -> Request | None:
    """The next request of a redirect; None if there is none, or if it must not be sent.

    Only a request to the same origin keeps its headers, its body, and a method other than GET or
    HEAD. A redirect from https to http is not followed if the request had headers or a body.
    Raises ToolError for a bad URL.
    """
    if reply.status not in _REDIRECTS or not reply.location:
        return None
    here = urls.parse_url(request.url)
    there = _joined(here, reply.location)
    keeps_method = reply.status in (307, 308) or request.method in _SAFE
    is_same_origin = urls.origin(here) == urls.origin(there)
    loses_encryption = here.scheme == "https" and there.scheme == "http"
    if not is_same_origin:
        changes_something = request.body or request.method not in _SAFE
        if keeps_method and changes_something:
            return None
        if loses_encryption and (request.body or request.headers):
            return None
    method = request.method if keeps_method else "GET"
    headers = request.headers if is_same_origin else {}
    if not keeps_method:  # the body goes, and so do the headers about it
        headers = {k: v for k, v in headers.items() if not k.startswith("content-")}
    return Request(method, str(there), headers, request.body if keeps_method else b"")


async def permit(request: Request, origin_url: str, context: ToolContext) -> None:
    """Check a redirect from `origin_url` as an access of its own.

    The approved origin needs no further approval, nor does the same host by https instead of
    http. Raises ToolError with the host's name if the rules or the user deny the access.
    """
    here, there = urls.parse_url(origin_url), urls.parse_url(request.url)
    access = urls.network_access(there)
    try:
        if not context.allow_private_hosts:
            urls.refuse_private(there.host)
        if context.denies(access):
            raise ToolError("denied by rule")
        # a change is approved for one URL, so each further one needs its own approval
        if request.method not in _SAFE or not _is_covered(here, there):
            await context.authorize(access, f"{request.method} {there}\n(redirected from {here})")
    except ToolError as error:
        raise ToolError(f"redirect to {there.host} not followed: {error}") from error


def _is_covered(here: "httpx.URL", there: "httpx.URL") -> bool:
    """Whether the approval of `here` holds for `there`."""
    before, after = urls.origin(here), urls.origin(there)
    is_upgrade = before == ("http", here.host, 80) and after == ("https", here.host, 443)
    return is_upgrade or before == after


def _joined(here: "httpx.URL", location: str) -> "httpx.URL":
    """The canonical URL to which a location, often a relative one, leads from here."""
    import httpx

    try:
        return urls.parse_url(str(here.join(location)))
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolError(f"{here.host} redirects to a bad URL") from error

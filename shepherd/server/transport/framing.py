"""Strict HTTP/1.1: requests that two programs could read differently are refused."""

import re
from typing import NoReturn
from urllib.parse import urlsplit

import h11

from shepherd.server.errors import ApiError

_FREE_CHUNKS = 1000
_MIN_CHUNK_BYTES = 512

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_FOLDED = re.compile(rb"\r\n[ \t]")
_LENGTH = re.compile(rb"\ncontent-length[ \t]*:([^\r\n]*)", re.IGNORECASE)
_ABSOLUTE = re.compile(rb"https?://", re.IGNORECASE)
_VERSIONS = (b"1.0", b"1.1")
_CODES = {414: "uri_too_long", 431: "headers_too_large", 501: "not_implemented"}


class StrictConnection(h11.Connection):
    """An h11 server connection that refuses ambiguous framing; `refusal` says why.

    Beyond h11: bare line feeds, folded headers, repeated lengths, a length beside a transfer
    encoding, other versions, heads over the limits, floods of tiny chunks. A target in absolute
    form is rewritten to its path.
    """

    def __init__(self, max_head_bytes: int, max_headers: int) -> None:
        """`max_head_bytes` are those of a request line and its headers, or of trailers."""
        super().__init__(h11.SERVER, max_head_bytes)
        self._max_head_bytes = max_head_bytes
        self._max_headers = max_headers
        self.refusal = ApiError(400, "The request is not valid HTTP.", "invalid_http")
        self._chunks = 0
        self._body_bytes = 0
        self._reads_head = True
        self._held: list[bytes] = []
        self.sends_last = False
        """Whether the part of a body that is sent next is the last."""

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """As h11's, but a head leaves with the first part of its body, a last part with the end.

        Each write takes as long as much of the rest of a request.
        """
        parts = self._sent(event)
        if isinstance(event, h11.Response) or (self.sends_last and isinstance(event, h11.Data)):
            self._held += parts or ()
            return []
        if self._held:
            parts, self._held = [*self._held, *(parts or ())], []
        return parts

    def _sent(self, event: h11.Event) -> list[bytes] | None:
        return super().send_with_data_passthrough(event)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """As h11's; raises RemoteProtocolError after `refusal` was set."""
        self._reads_head = self.their_state is h11.IDLE
        if self._reads_head:
            self._check_head(self.trailing_data[0].lstrip(b"\r\n"))
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self._set_refusal(error.error_status_hint, f"The request is not valid HTTP: {error}.")
            raise
        if isinstance(event, h11.Data):
            self._count(len(event.data))
        return self._checked(event) if isinstance(event, h11.Request) else event

    def _check_head(self, received: bytes) -> None:
        end = _HEAD_END.search(received)
        head = received[: end.start()] if end else received
        if len(head) > self._max_head_bytes:
            if b"\n" not in head:
                self._refuse(414, f"The target is longer than {self._max_head_bytes:,} bytes.")
            self._refuse(431, f"The headers are larger than {self._max_head_bytes:,} bytes.")
        if head.count(b"\n") > self._max_headers:
            self._refuse(431, f"There are more than {self._max_headers} headers.")
        if _BARE_LINE_FEED.search(head) or (end and end.group() != b"\r\n\r\n"):
            self._refuse(400, "Lines must end with CRLF, not with LF alone.")
        if _FOLDED.search(head):
            self._refuse(400, "Headers must not be folded over several lines.")
        lengths = _LENGTH.findall(head)
        if len(lengths) > 1 or any(b"," in length for length in lengths):
            self._refuse(400, "Content-Length must be there at most once, with one number.")

    def _checked(self, request: h11.Request) -> h11.Request:
        self._chunks = self._body_bytes = 0
        names = {name for name, _ in request.headers}
        if request.http_version not in _VERSIONS:
            self._refuse(505, "Only versions 1.0 and 1.1 of HTTP are served.")
        if b"transfer-encoding" in names:
            if b"content-length" in names:
                self._refuse(400, "Transfer-Encoding and Content-Length exclude each other.")
            if request.http_version == b"1.0":
                self._refuse(400, "HTTP/1.0 has no Transfer-Encoding.")
        return self._origin_form(request) if _ABSOLUTE.match(request.target) else request

    def _origin_form(self, request: h11.Request) -> h11.Request:
        try:
            target = urlsplit(request.target)
        except ValueError:
            self._refuse(400, "The target's address can't be read.")
        hosts = [value for name, value in request.headers if name == b"host"]
        if any(host.lower() != target.netloc.lower() for host in hosts):
            self._refuse(400, "The Host header and the target name different hosts.")
        headers = [(n, v) for n, v in request.headers if n != b"host"]
        path = (target.path or b"/") + (b"?" + target.query if target.query else b"")
        return h11.Request(
            method=request.method,
            target=path,
            headers=[(b"host", target.netloc), *headers],
            http_version=request.http_version,
        )

    def _count(self, size: int) -> None:
        self._chunks += 1
        self._body_bytes += size
        allowed = _FREE_CHUNKS + self._body_bytes // _MIN_CHUNK_BYTES
        if self._chunks > allowed:
            self._refuse(400, "The body comes in too many small chunks.")

    def _refuse(self, status: int, message: str) -> NoReturn:
        self._set_refusal(status, message)
        raise h11.RemoteProtocolError(message, error_status_hint=status)

    def _set_refusal(self, status: int, message: str) -> None:
        if status == 431 and self._reads_head and b"\n" not in self.trailing_data[0]:
            status = 414
        message = message if message.isprintable() else "The request is not valid HTTP."
        self.refusal = ApiError(status, message, _CODES.get(status, "invalid_http"))

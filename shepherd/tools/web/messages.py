"""What is sent and what comes back."""

from dataclasses import dataclass, field

from shepherd.tools.web.body import Body


@dataclass(frozen=True, slots=True)
class Request:
    """What to send; names of headers are in lower case."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; headers are as the server wrote them."""

    status: int
    content_type: str
    charset: str | None
    location: str
    body: Body

"""A provider's address and credentials."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from shepherd.backends.api.adapter import ApiRequest

_CREDENTIALS = re.compile(r"auth|key|token|cookie", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider's address; `name` is the user's, `headers` are sent with each request.

    `http2` enables HTTP/2, which a vendor's own host supports. Proxies buffer it, and local servers
    don't support it. `stored` is False if only the command line describes the provider.
    """

    base_url: str
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    name: str = ""
    http2: bool = False
    stored: bool = True

    @property
    def label(self) -> str:
        """The user's name for it, or its host."""
        return self.name or urlsplit(self.base_url).netloc

    @property
    def has_key(self) -> bool:
        """Whether requests carry credentials, as a key or in a header of the user's."""
        return bool(self.api_key) or any(_CREDENTIALS.search(name) for name in self.headers)

    @property
    def is_near(self) -> bool:
        """Whether it is on this machine or network; it may take long to read a prompt."""
        host = (urlsplit(self.base_url).hostname or "").lower()
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return "." not in host or host.endswith((".local", ".localhost", ".lan", ".internal"))
        return address.is_private or address.is_loopback or address.is_link_local

    def url(self, request: ApiRequest) -> str:
        """The URL of a request: its path is appended to the base URL; `../` goes up."""
        return urljoin(self.base_url.rstrip("/") + "/", request.path.lstrip("/"))

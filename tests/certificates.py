"""The certificates that HTTP clients of the tests trust, read once."""

import os
import ssl
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

CLIENTS = ("httpx", "httpx2")
"""Packages of clients; each reads the certificates for every client that is made, for 40 ms."""

Create = Callable[[Any, Any, bool], ssl.SSLContext]


def share() -> None:
    """Give the clients of each imported package one context."""
    for package in filter(sys.modules.__contains__, CLIENTS):
        create = _shared(sys.modules[package].create_ssl_context)
        for place in ("", "._config", "._transports.default"):
            sys.modules[package + place].__dict__["create_ssl_context"] = create


def _shared(create: Create) -> Callable[..., ssl.SSLContext]:
    """The function that makes contexts, with a cache; the environment may name certificates."""

    @lru_cache
    def cached(trust_env: bool, *_names: str) -> ssl.SSLContext:  # noqa: FBT001 - httpx passes it by position
        return create(True, None, trust_env)

    def shared(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:  # noqa: FBT001 - httpx passes it by position
        if verify is not True or cert is not None:
            return create(verify, cert, trust_env)
        names = [os.environ.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
        return cached(trust_env, *names)

    return shared

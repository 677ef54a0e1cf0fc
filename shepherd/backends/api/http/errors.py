"""httpx's errors in place of httpcore's."""

from collections.abc import Mapping

import httpcore
import httpx

_ERRORS: Mapping[type[Exception], type[httpx.TransportError]] = {
    httpcore.ConnectTimeout: httpx.ConnectTimeout,
    httpcore.ReadTimeout: httpx.ReadTimeout,
    httpcore.WriteTimeout: httpx.WriteTimeout,
    httpcore.PoolTimeout: httpx.PoolTimeout,
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ReadError: httpx.ReadError,
    httpcore.WriteError: httpx.WriteError,
    httpcore.ProxyError: httpx.ProxyError,
    httpcore.UnsupportedProtocol: httpx.UnsupportedProtocol,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
}
CORE_ERRORS = tuple(_ERRORS)
"""httpcore's errors that have one of httpx."""


def httpx_error(error: Exception, request: httpx.Request | None = None) -> httpx.TransportError:
    """httpx's error of the same name as one of `CORE_ERRORS`."""
    return _ERRORS[type(error)](str(error), request=request)

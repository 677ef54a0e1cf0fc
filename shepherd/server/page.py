"""Pages for a browser: one document each, which loads nothing and has no data in itself.

They are put together without a build step. The parts that several have are those of the page of a
shared session.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader
from starlette.responses import Response

_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def page_response(name: str, *scripts: str) -> Response:
    """The page of a template (see `page`)."""
    text, headers = page(name, *scripts)
    return Response(text, 200, headers, "text/html; charset=utf-8")


@cache
def page(name: str, *scripts: str) -> tuple[str, Mapping[str, str]]:
    """The document and its headers; the policy allows its own style and script by their hashes.

    `scripts` are parts of the shared session's page; they and its style stand before its own.
    """
    templates = files("shepherd.server")
    shared = templates.joinpath("shared", "page")
    style = shared.joinpath("page.css").read_text("utf-8")
    parts = (shared.joinpath(part).read_text("utf-8") for part in scripts)
    script = "\n".join(['"use strict";', *parts])
    loader = FunctionLoader(lambda name: templates.joinpath(name).read_text("utf-8"))
    text = Environment(loader=loader).get_template(name).render(style=style, script=script)
    directives = [
        "default-src 'none'",
        f"script-src {_hash_source(text, 'script')}",
        f"style-src {_hash_source(text, 'style')}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return text, {"Content-Security-Policy": "; ".join(directives), **_HEADERS}


def _hash_source(text: str, tag: str) -> str:
    """The hash by which the policy allows the only element of this kind."""
    (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"

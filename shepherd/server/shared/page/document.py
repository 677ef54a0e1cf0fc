"""The web page of a shared session, put together from its parts."""

import hashlib
from base64 import b64encode
from functools import cache
from importlib.resources import files

SCRIPTS = ("text.js", "markdown.js", "client.js", "messages.js", "main.js")

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@cache
def page() -> tuple[str, dict[str, str]]:
    """The document and its headers; the policy allows its own style and script by their hashes."""
    style = _part("page.css")
    script = '"use strict";\n' + "\n".join(_part(name) for name in SCRIPTS)
    text = _part("page.html").replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
    directives = [
        "default-src 'none'",
        f"script-src {_source(script)}",
        f"style-src {_source(style)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return text, {"Content-Security-Policy": "; ".join(directives), **_HEADERS}


def _part(name: str) -> str:
    return files(__package__ or "").joinpath(name).read_text("utf-8")


def _source(text: str) -> str:
    """The hash by which the policy allows an inline element."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

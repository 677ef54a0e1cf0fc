"""The pages for browsers: their policies, their parts, and what their texts can become."""

import hashlib
import re
from base64 import b64encode

import pytest

from shepherd.server.access.key import KeyLimits, KeyScope
from shepherd.server.page import page
from shepherd.server.shared.routes import SCRIPTS

SINKS = (
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser"
    r"|\beval\b|new Function|setHTML|srcdoc|\.on[a-z]+\s*=|localStorage|document\.cookie"
    r"|XMLHttpRequest|WebSocket|EventSource|importScripts|import\(|window\.open|location\.(?!\w*;)"
)
PAGES = {
    "#prompt": page("shared/page/page.html", *SCRIPTS),
    "#board": page("operation/admin.html", "text.js", "client.js"),
}
"""The pages, by what their first link leads to."""

ADMIN = PAGES["#board"][0]
every_page = pytest.mark.parametrize("skip", PAGES)


def inline(text: str, tag: str) -> str:
    """The text of a page's only element of this kind."""
    (found,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return found


def markup(text: str) -> str:
    return text.replace(inline(text, "script"), "").replace(inline(text, "style"), "")


def digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@every_page
def test_the_policy_allows_only_what_the_page_holds(skip: str) -> None:
    text, headers = PAGES[skip]
    policy = headers["Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "script-src": digest(inline(text, "script")),
        "style-src": digest(inline(text, "style")),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


@every_page
def test_the_page_holds_everything_and_names_nothing_elsewhere(skip: str) -> None:
    text = PAGES[skip][0]
    html, rest = markup(text), text.replace(inline(text, "script"), "")
    assert not re.findall(r"(?:src|action|data|poster)\s*=|@import|url\(", rest)
    assert re.findall(r'href="([^"]*)"', html) == ["data:,", skip]
    assert not re.search(r"https?://\w", text)
    assert not re.search(r"\son[a-z]+\s*=|javascript:|\sstyle\s*=", html, re.IGNORECASE)
    assert "/*SCRIPT*/" not in text
    assert "/*STYLE*/" not in text


@every_page
def test_no_text_can_become_markup_or_code(skip: str) -> None:
    script = inline(PAGES[skip][0], "script")
    code = re.sub(r"^\s*//.*$", "", script, flags=re.MULTILINE)
    assert "replaceChildren" in code
    assert re.findall(SINKS, code) == []


@every_page
def test_every_control_has_a_name(skip: str) -> None:
    text = PAGES[skip][0]
    html = markup(text)
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    for control in re.findall(r"<(?:input|textarea|select)[^>]*>", html):
        (name,) = re.findall(r'id="([^"]+)"', control)
        assert f'<label for="{name}"' in html
    for name in re.findall(r'(?:aria-labelledby|aria-describedby|for)="([^"]+)"', html):
        assert name in ids
    assert '<html lang="en">' in html
    assert set(re.findall(r'\$\("([\w-]+)"\)', inline(text, "script"))) <= set(ids)


def test_the_form_of_a_key_has_all_that_a_key_may_do() -> None:
    html = markup(ADMIN)
    assert re.findall(r'type="checkbox" id="scope-(\w+)"', html) == [str(s) for s in KeyScope]
    assert set(re.findall(r'id="limit-(\w+)"', html)) == set(KeyLimits.__struct_fields__)


PAIRS = [
    *(("ink", ground) for ground in ("paper", "panel", "mine", "added", "removed")),
    *((text, "paper") for text in ("quiet", "accent", "bad")),
    *((text, "panel") for text in ("quiet", "bad")),
    ("on-accent", "accent"),
    ("warn-ink", "warn"),
]


def brightness(color: str) -> float:
    """The relative luminance of `#rrggbb`, as WCAG defines it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_text_can_be_read_on_its_ground(scheme: int) -> None:
    block = re.findall(r":root \{(.*?)\}", inline(ADMIN, "style"), re.DOTALL)[scheme]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for text, ground in PAIRS:
        light, dark = sorted((brightness(colors[text]), brightness(colors[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)

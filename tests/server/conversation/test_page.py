"""The page of a shared session: its policy, its parts, and who gets it."""

import hashlib
import re
from base64 import b64encode
from pathlib import Path

import pytest

from shepherd.conversation.commands.table import COMMANDS
from shepherd.server.access.keys import KeyStore
from shepherd.server.shared.routes import SCRIPTS, page
from shepherd.session import Session
from tests.server.conversation.harness import serving

SINKS = (
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser"
    r"|\beval\b|new Function|setHTML|srcdoc|\.on[a-z]+\s*=|localStorage|document\.cookie"
    r"|XMLHttpRequest|WebSocket|EventSource|importScripts|import\(|window\.open|location\.(?!\w*;)"
)


def inline(tag: str) -> str:
    """The text of the page's only element of this kind."""
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page()[0], re.DOTALL)
    return text


def digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_only_what_the_page_holds() -> None:
    policy = page()[1]["Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "script-src": digest(inline("script")),
        "style-src": digest(inline("style")),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


def test_the_page_holds_everything_and_names_nothing_elsewhere() -> None:
    text = page()[0]
    html = text.replace(inline("script"), "").replace(inline("style"), "")
    assert not re.findall(
        r"(?:src|action|data|poster)\s*=|@import|url\(", text.replace(inline("script"), "")
    )
    assert re.findall(r'href="([^"]*)"', html) == ["data:,", "#prompt"]
    assert not re.search(r"https?://\w", text)
    assert not re.search(r"\son[a-z]+\s*=|javascript:|\sstyle\s*=", html, re.IGNORECASE)
    assert "/*SCRIPT*/" not in text
    assert "/*STYLE*/" not in text


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_text_can_become_markup_or_code(name: str) -> None:
    script = inline("script")
    source = Path(__file__).parents[3] / "shepherd" / "server" / "shared" / "page" / name
    code = re.sub(r"^\s*//.*$", "", source.read_text("utf-8"), flags=re.MULTILINE)
    assert code.strip().splitlines()[-1] in script
    assert re.findall(SINKS, code) == []


def test_every_control_has_a_name() -> None:
    html = page()[0].replace(inline("script"), "")
    ids = set(re.findall(r'id="([^"]+)"', html))
    for control in re.findall(r"<(?:input|textarea)[^>]*>", html):
        (name,) = re.findall(r'id="([^"]+)"', control)
        assert f'<label for="{name}"' in html
    for name in re.findall(r'(?:aria-labelledby|aria-describedby|for)="([^"]+)"', html):
        assert name in ids
    assert '<html lang="en">' in html
    assert set(re.findall(r'\$\("([\w-]+)"\)', inline("script"))) <= ids


def test_the_page_knows_all_commands() -> None:
    (names,) = re.findall(r"const COMMAND = /\^\\/\(([a-z|]+)\)", inline("script"))
    assert set(names.split("|")) == set(COMMANDS)


PAIRS = [
    *(("ink", ground) for ground in ("paper", "panel", "mine", "added", "removed")),
    *((text, "paper") for text in ("quiet", "accent", "bad")),
    ("quiet", "panel"),
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
    block = re.findall(r":root \{(.*?)\}", inline("style"), re.DOTALL)[scheme]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for text, ground in PAIRS:
        light, dark = sorted((brightness(colors[text]), brightness(colors[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


async def test_the_page_needs_no_key_and_everything_else_does(work: Path) -> None:
    keys = KeyStore(work.parent / "keys.json")
    keys.add("laptop")
    async with serving("text: a", work, keys=keys) as served:
        answer = await served.http.get("/")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert (await served.http.head("/")).status_code == 200
        assert (await served.http.post("/")).status_code == 401
        for path in ("/session", "/sessions", "/updates", "/favicon.ico"):
            assert (await served.http.get(path)).status_code == 401


async def test_pages_of_elsewhere_do_not_get_in_without_keys(work: Path) -> None:
    async with serving("text: a", work) as served:
        assert (await served.http.get("/")).status_code == 200
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            assert (await served.http.get("/", headers=headers)).status_code == 403


async def test_another_session_is_shared_with_all(work: Path) -> None:
    async with serving("text: a\n---\ntext: b", work) as served:
        served.held.saved["s2"] = Session("You are another.", id="s2")
        await served.ask("hi")
        listed = (await served.http.get("/sessions")).json()["sessions"]
        assert [(s["id"], s["current"]) for s in listed] == [("s1", True), ("s2", False)]
        async with served.updates() as watcher:
            missing = await served.post("/sessions/nothing")
            assert (missing.status_code, missing.json()["error"]["code"]) == (
                404,
                "session_not_found",
            )
            assert (await served.session())["id"] == "s1"
            assert (await served.post("/sessions/s2")).status_code == 200
            seen = await watcher.until("snapshot")
            state = await served.session()
            assert (state["id"], state["messages"]) == ("s2", [])
            assert state["update_id"] == seen.data["update_id"]
            await served.ask("again")
            assert [m["content"] for m in (await served.session())["messages"]] == ["again", "b"]
            await watcher.until("message_added", 1)
        assert len(served.held.saved["s2"].messages) == 2

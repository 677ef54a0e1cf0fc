"""The page of a shared session: its commands, who gets it, and the sessions that it lists."""

import re
from pathlib import Path

from shepherd.conversation.commands.table import COMMANDS
from shepherd.server.access.keys import KeyStore
from shepherd.server.page import page
from shepherd.server.shared.routes import SCRIPTS
from shepherd.session import Session
from tests.server.conversation.harness import serving


def test_the_page_knows_all_commands() -> None:
    text, _ = page("shared/page/page.html", *SCRIPTS)
    (names,) = re.findall(r"const COMMAND = /\^\\/\(([a-z|]+)\)", text)
    assert set(names.split("|")) == set(COMMANDS)


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

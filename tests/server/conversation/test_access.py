"""Who may come in, wrong paths and methods, and what survives a restart."""

from pathlib import Path

import pytest

from shepherd.server.access.keys import KeyStore
from shepherd.server.settings import ServerSettings
from shepherd.session import Session
from shepherd.transcript import SessionStore
from tests.server.conversation.harness import serving

PATHS = [
    ("GET", "/session"),
    ("GET", "/updates"),
    ("POST", "/request"),
    ("POST", "/clear"),
    ("POST", "/approvals/x"),
    ("DELETE", "/request/x"),
]


async def test_every_path_but_the_health_check_needs_a_key(work: Path) -> None:
    keys = KeyStore(work.parent / "keys.json")
    key = keys.add("laptop")
    async with serving("text: ok", work, keys=keys) as served:
        for method, path in PATHS:
            answer = await served.http.request(method, path, json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert (await served.http.get("/health")).json()["model"] == "script"
        served.headers["Authorization"] = f"Bearer {key}"
        assert (await served.ask("hi")).json()["content"] == "ok"


async def test_pages_of_elsewhere_are_refused(work: Path) -> None:
    settings = ServerSettings(port=0, cors_origins=["https://page.example"])
    async with serving("text: ok", work, settings=settings) as served:
        for method, path in PATHS:
            foreign = {"Origin": "https://evil.example"}
            assert (await served.http.request(method, path, headers=foreign)).status_code == 403
        asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "DELETE"}
        answer = await served.http.options("/request/x", headers=asked)
        assert answer.status_code == 200
        assert "DELETE" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/models", 404, "not_found"),
        ("GET", "/request", 405, "method_not_allowed"),
        ("POST", "/updates", 405, "method_not_allowed"),
        ("GET", "/request/unknown", 404, "request_not_found"),
        ("DELETE", "/request/unknown", 404, "request_not_found"),
    ],
)
async def test_wrong_paths_and_methods(
    work: Path, method: str, path: str, status: int, code: str
) -> None:
    async with serving("text: ok", work) as served:
        answer = await served.http.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_large_and_foreign_bodies_are_refused(work: Path) -> None:
    async with serving("text: ok", work, settings=ServerSettings(port=0, max_body_bytes=1024)) as s:
        assert (await s.ask("x" * 2000)).status_code == 413
        form = {"Content-Type": "text/plain"}
        text = await s.http.post("/request", content='{"prompt": "hi"}', headers=form)
        assert text.status_code == 415


async def test_the_session_survives_a_restart(work: Path) -> None:
    store = SessionStore(work.parent / "sessions")
    transcript = store.create(work, "script", "You are a shepherd.", _fail)
    session = Session("You are a shepherd.", id=transcript.header.id)
    script = 'call: read_file {"path": "notes.txt"}\n---\ntext: Buy milk.'
    async with serving(script, work, session=session, journal=transcript) as served:
        await served.ask("what is to do?")
        before = await served.session()
    transcript.close()
    transcript, saved = store.reopen(before["id"], _fail)
    session = Session(saved.system_message, list(saved.messages), id=saved.id)
    async with serving("text: Nothing.", work, session=session, journal=transcript) as served:
        after = await served.session()
        assert after["messages"] == before["messages"]
        assert len(after["messages"]) == 4
        assert after["context"]["used"] > 0
        async with served.http.stream(
            "GET", "/updates", headers={"Last-Event-ID": before["update_id"]}
        ) as response:
            lines = response.aiter_lines()
            while (await anext(lines)) != "event: snapshot":
                pass
        assert (await served.ask("and else?")).json()["content"] == "Nothing."
    transcript.close()
    assert len(store.read(before["id"]).messages) == 6


def _fail(text: str) -> None:
    raise AssertionError(text)


async def test_a_removed_key_ends_the_updates_with_an_error(work: Path) -> None:
    keys = KeyStore(work.parent / "keys.json")
    headers = {"Authorization": f"Bearer {keys.add('laptop')}"}
    async with (
        serving("text: ok", work, keys=keys) as served,
        served.http.stream("GET", "/updates", headers=headers) as response,
    ):
        lines = response.aiter_lines()
        assert await anext(lines) != ""
        keys.remove("laptop")
        kind, data = [line async for line in lines if line and not line.startswith(":")][-2:]
    assert kind == "event: error"
    assert '"error":"invalid_api_key"' in data

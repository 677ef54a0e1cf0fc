"""`/admin`: who gets in, what a key of the page can do, and what never leaves the server."""

import hashlib
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import KeyStore, KeyStoreError
from shepherd.server.app import ServerApp, create_app
from shepherd.server.operation.keys import VISIBLE
from shepherd.server.operation.lifecycle import Lifecycle
from tests.server.harness import CHAT, HI

ADMIN_ONLY = frozenset({KeyScope.ADMIN})


def over_socket(app: ASGIApp) -> ASGIApp:
    """The application as requests over its Unix socket see it."""

    async def local(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "server": ("/run/socket", None)}, receive, send)

    return local


def client(app: ASGIApp, key: str = "") -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8000", headers=headers)


@dataclass
class Served:
    """A server with keys, and a client with the key `boss`, whose answers are kept."""

    store: KeyStore
    app: ServerApp
    secret: str
    answers: list[str] = field(default_factory=list[str])

    async def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        async with client(self.app, self.secret) as http:
            answer = await http.request(method, path, json=body)
        assert answer.status_code == status, answer.text
        self.answers.append(answer.text)
        return answer.json()

    async def chat(self, key: str) -> int:
        """The status of a request with a key."""
        async with client(self.app, key) as http:
            return (await http.post(CHAT, json={"messages": HI})).status_code


def only_admin(key: ApiKey) -> ApiKey:
    return replace(key, scopes=ADMIN_ONLY)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    store = KeyStore(tmp_path / "keys.json")
    secret = store.add("boss", only_admin)
    backend = ScriptedBackend(parse_script("text: hi"))
    return Served(store, create_app(backend, keys=store), secret)


async def test_the_page_is_open_and_all_below_it_is_not(served: Served) -> None:
    user = served.store.add("user")
    paths = {
        (method, (route.path_format or "").replace("{name}", "user"))
        for route in iter_route_contexts(served.app.api.routes)
        for method in route.methods or ()
        if (route.path_format or "").startswith("/admin/")
    }
    assert len(paths) >= 10
    for key, status in (("", 401), (user, 403), ("sk-shep-wrong", 401)):
        async with client(served.app, key) as http:
            page = await http.get("/admin")
            assert page.status_code == 200
            assert page.headers["content-security-policy"].startswith("default-src 'none'; ")
            assert page.headers["cache-control"] == "no-store"
            for name in ("boss", "user", served.secret, "scripted"):
                assert f'"{name}"' not in page.text
            for method, path in paths:
                answer = await http.request(method, path, json={"name": "mine"})
                assert answer.status_code == status, path
    listed = served.store.keys()
    assert [key.name for key in listed] == ["boss", "user"]


async def test_without_keys_only_the_unix_socket_opens_it(served: Served) -> None:
    open_to_all = create_app(ScriptedBackend(parse_script("text: hi")))
    async with client(open_to_all) as http:
        assert (await http.get("/admin")).status_code == 200
        for path in ("/admin/status", "/admin/log"):
            refused = await http.get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (
                403,
                "insufficient_scope",
            )
        assert (await http.get("/admin/keys")).status_code == 404
    for app in (open_to_all, served.app):
        async with client(over_socket(app)) as http:
            assert (await http.get("/admin/log")).json() == {"lines": []}
    async with client(over_socket(served.app)) as http:
        made = await http.post("/admin/keys", json={"name": "by-socket"})
    assert served.store.find(made.json()["secret"]) is not None


async def test_a_key_is_made_changed_rotated_and_removed(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ends = (datetime.now(UTC) + timedelta(days=9)).isoformat(timespec="seconds")
    body = {"name": "ci", "note": "<b>", "scopes": ["chat"], "models": ["*"], "expires": ends}
    made = await served.call("POST", "/admin/keys", body)
    secrets = [made["secret"]]
    (answer,) = served.answers
    served.answers.clear()
    assert answer.count(made["secret"]) == 1
    assert await served.chat(made["secret"]) == 200

    listed = await served.call("GET", "/admin/keys")
    assert listed["own"] == "boss"
    (_, shown) = listed["keys"]
    assert {name: shown[name] for name in body} | {"expires": ends} == body | {"expires": ends}
    assert set(shown["limits"].values()) == {None}

    # a change keeps what it does not name
    await served.call("POST", "/admin/keys/ci", {"limits": {"requests_per_minute": 2}})
    entry = served.store.get("ci")
    assert (entry.note, entry.scopes) == ("<b>", frozenset({KeyScope.CHAT}))
    assert entry.expires is not None
    assert entry.limits.requests_per_minute == 2
    assert [await served.chat(made["secret"]) for _ in range(3)] == [200, 200, 429]
    await served.call("POST", "/admin/keys/ci", {"limits": {}, "expires": None})
    assert served.store.get("ci").expires is None
    assert await served.chat(made["secret"]) == 200

    rotated = await served.call("POST", "/admin/keys/ci/rotate", {"grace_seconds": 60})
    again = await served.call("POST", "/admin/keys/ci/rotate", {})
    secrets += [rotated["secret"], again["secret"]]
    del served.answers[-2:]  # those have the new secrets
    assert [await served.chat(secret) for secret in secrets] == [401, 401, 200]
    await served.call("GET", "/admin/keys")
    await served.call("DELETE", "/admin/keys/ci")
    assert await served.chat(secrets[-1]) == 401
    for method, path in (("DELETE", "ci"), ("POST", "ci"), ("POST", "ci/rotate")):
        refused = await served.call(method, f"/admin/keys/{path}", {}, 400)
        assert "No key is called ci" in refused["error"]["message"]

    hashes = [hashlib.sha256(secret.encode()).hexdigest() for secret in secrets]
    for text in (*served.answers, caplog.text):
        assert not [secret for secret in (*secrets, *hashes, served.secret) if secret in text]
    assert "The key ci was removed" in caplog.text


async def test_during_the_grace_both_secrets_are_valid(served: Served) -> None:
    old = served.store.add("ci")
    new = await served.call("POST", "/admin/keys/ci/rotate", {"grace_seconds": 60})
    assert [await served.chat(secret) for secret in (old, new["secret"])] == [200, 200]


WRONG: list[dict[str, Any]] = [
    {"sha256": "0" * 64},
    {"old_secret": {"sha256": "0" * 64, "until": "2999-01-01T00:00:00Z"}},
    {"prefix": "sk-shep-mine"},
    {"created": "2020-01-01T00:00:00Z"},
    {"limit": {"requests_per_day": 1}},
    {"limits": {"requests_per_hour": 1}},
    {"limits": {"requests_per_day": 0}},
    {"limits": {"requests_per_day": 10**13}},
    {"scopes": ["root"]},
    {"models": ["a b"]},
    {"models": ["a\n"]},
    {"note": "x" * 201},
    {"expires": "2020-01-01T00:00:00Z"},
    {"expires": "2999-01-01T00:00:00"},
    {"share": -1},
    {"kind": "boss"},
]


@pytest.mark.parametrize("body", WRONG, ids=str)
async def test_what_a_key_can_not_have_is_refused_and_changes_nothing(
    served: Served, body: dict[str, Any]
) -> None:
    served.store.add("ci")
    before = served.store.path.read_bytes()
    await served.call("POST", "/admin/keys/ci", body, 400)
    await served.call("POST", "/admin/keys", {"name": "new", **body}, 400)
    assert served.store.path.read_bytes() == before


@pytest.mark.parametrize("name", ["boss", "", "a b", "<b>", "../x", "x" * 65, "a\n"])
async def test_a_name_that_is_taken_or_wrong_is_refused(served: Served, name: str) -> None:
    before = served.store.path.read_bytes()
    await served.call("POST", "/admin/keys", {"name": name}, 400)
    await served.call("POST", "/admin/keys/boss", {"name": "chief"}, 400)
    assert served.store.path.read_bytes() == before


def test_only_the_hashes_of_a_key_stay_in_the_server() -> None:
    hidden = set(ApiKey.__struct_fields__) - VISIBLE
    assert hidden == {"sha256", "old_secret"}


async def test_keys_that_can_not_be_used_are_no_internal_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_change: Any) -> None:
        raise KeyStoreError("The database does not answer")

    monkeypatch.setattr(served.store, "_change", fail)
    refused = await served.call("DELETE", "/admin/keys/boss", status=503)
    assert refused["error"]["code"] == "keys_unavailable"


async def test_the_log_has_the_lines_that_the_server_keeps() -> None:
    lines = [{"time": "t", "level": "warning", "message": "<script>"}]
    app = create_app(ScriptedBackend(parse_script("text: hi")), lifecycle=Lifecycle(log=lines))
    async with client(over_socket(app)) as http:
        assert (await http.get("/admin/log")).json() == {"lines": lines}

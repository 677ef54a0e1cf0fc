"""Who is let in."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.keys import KeyStore
from shepherd.server.guard import names_this_machine
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, Scripted, ask, scripted

SETTINGS = ServerSettings(port=0)


def backend() -> ScriptedBackend:
    return ScriptedBackend(parse_script("text: come in"))


@pytest.fixture(scope="module")
def unlocked() -> Iterator[Scripted]:
    settings = ServerSettings(port=0, cors_origins=["https://friend.example"])
    with scripted("text: hi", settings) as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.json")


@pytest.fixture
def locked(store: KeyStore) -> Iterator[Scripted]:
    # the server has a store of its own: keys come and go as `shepherd apikey` changes them
    with RunningServer(backend(), SETTINGS, KeyStore(store.path)) as server:
        yield server


def status(server: Scripted, **headers: str) -> int:
    return httpx.get(f"{server.url}/v1/models", headers=headers, timeout=PATIENCE).status_code


def test_keys_open_the_door_from_the_moment_they_exist(locked: Scripted, store: KeyStore) -> None:
    with locked.client("sk-shep-wrong") as client, pytest.raises(openai.AuthenticationError):
        ask(client)
    key = store.add("laptop")
    with locked.client(key) as client:
        assert ask(client).choices[0].message.content == "come in"
        store.remove("laptop")
        with pytest.raises(openai.AuthenticationError) as caught:
            ask(client)
    assert caught.value.code == "invalid_api_key"
    assert caught.value.response.headers["www-authenticate"] == "Bearer"


def test_key_may_come_in_either_header(locked: Scripted, store: KeyStore) -> None:
    key = store.add("laptop")
    assert status(locked, Authorization=f"Bearer {key}") == 200
    assert status(locked, Authorization=f"bearer  {key}") == 200
    assert status(locked, **{"x-api-key": key}) == 200
    assert status(locked, **{"x-goog-api-key": key}) == 200
    assert status(locked, Authorization=f"Basic {key}") == 401
    assert status(locked, Authorization=key) == 401
    assert status(locked, Authorization="Bearer") == 401
    assert status(locked) == 401


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?key={key}", 200),
        ("?alt=sse&key={key}", 200),
        ("?key=&key={key}", 200),
        ("?key={key}x", 401),
        ("?key=", 401),
        ("?Key={key}", 401),
        ("?api_key={key}", 401),
        ("?key=%ff%00", 401),
        ("?" + "&" * 9000, 401),
    ],
)
def test_key_may_come_in_the_query_and_is_not_logged(
    locked: Scripted, store: KeyStore, caplog: pytest.LogCaptureFixture, query: str, expected: int
) -> None:
    key = store.add("laptop")
    caplog.set_level("DEBUG")
    url = f"{locked.url}/v1/models{query.format(key=key)}"
    response = httpx.get(url, timeout=PATIENCE)
    assert response.status_code == expected
    assert key not in response.text

    def lines() -> list[str]:
        records = [r for r in caplog.records if r.name.startswith(("shepherd", "uvicorn"))]
        return [record.getMessage() for record in records]

    locked.until(lambda: any(f"GET /v1/models {expected}" in line for line in lines()))
    assert not any(key in line for line in lines())


@pytest.mark.parametrize("path", ["/v1/models", CHAT, "/v1/nothing", "/", "/HEALTH", "//health"])
def test_no_path_but_health_answers_without_a_key(locked: Scripted, path: str) -> None:
    assert httpx.get(locked.url + path, timeout=PATIENCE).status_code == 401
    assert httpx.post(locked.url + path, json={"messages": HI}, timeout=PATIENCE).status_code == 401
    assert httpx.get(f"{locked.url}/health", timeout=PATIENCE).status_code == 200


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1, "keys": 5}', "\x00"])
def test_damaged_key_file_closes_the_door(locked: Scripted, store: KeyStore, content: str) -> None:
    key = store.add("laptop")
    assert status(locked, Authorization=f"Bearer {key}") == 200
    store.path.write_text(content)
    response = httpx.get(
        f"{locked.url}/v1/models", headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE
    )
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "keys_unavailable"
    assert str(store.path) not in response.text


def test_key_file_that_others_may_read_closes_the_door(locked: Scripted, store: KeyStore) -> None:
    key = store.add("laptop")
    store.path.chmod(0o644)
    assert status(locked, Authorization=f"Bearer {key}") == 503
    store.path.chmod(0o600)
    assert status(locked, Authorization=f"Bearer {key}") == 200
    store.path.unlink()
    assert status(locked, Authorization=f"Bearer {key}") == 401


def test_nothing_said_and_no_key_is_logged(
    store: KeyStore, caplog: pytest.LogCaptureFixture
) -> None:
    key = store.add("laptop")
    caplog.set_level("DEBUG", logger="shepherd")
    with RunningServer(backend(), SETTINGS, store) as server, server.client(key) as client:
        ask(client, messages=[{"role": "user", "content": "my secret"}])
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("shepherd")]
    assert any("POST /v1/chat/completions 200" in line for line in lines)
    assert not any(key in line or "secret" in line or "come in" in line for line in lines)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("app.localhost", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:8000", 403),
        ("[::1", 403),
        ("", 403),
        ("evil.example@127.0.0.1", 403),
        ("localhost:80@evil.example", 403),
        ("localhost@evil.example", 403),
        ("[::1].evil.example", 403),
        ("[::1]evil", 403),
        ("[127.0.0.1]", 403),
        ("[::1%25eth0]", 403),
        ("::1", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("localhost:", 403),
        ("localhost:x", 403),
        ("localhost:80:80", 403),
        ("localhost/evil", 403),
        ("localhost?evil", 403),
        ("localhost#evil", 403),
        ("localhost,evil", 403),
        ("http://localhost", 403),
        ("LOCALHOST:80", 200),
    ],
)
def test_without_keys_only_this_machine_s_names_are_served(
    unlocked: Scripted, host: str, expected: int
) -> None:
    assert status(unlocked, Host=host) == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("file://", 403),
        ("http://evil.example@localhost", 403),
        ("http://localhost:80@evil.example", 403),
        ("http://localhost/evil", 403),
        ("http://localhost http://evil.example", 403),
        ("localhost", 403),
        ("http://[::1].evil.example", 403),
        ("tauri://localhost", 200),
        ("https://friend.example", 200),
        ("https://friend.example.evil.example", 403),
    ],
)
def test_without_keys_only_known_pages_may_call(
    unlocked: Scripted, origin: str, expected: int
) -> None:
    assert status(unlocked, Origin=origin) == expected


def test_pages_may_read_answers_only_if_named(unlocked: Scripted) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Origin": "https://friend.example"}
    preflight = httpx.options(unlocked.url + CHAT, headers=asked, timeout=PATIENCE)
    assert preflight.headers["access-control-allow-origin"] == "https://friend.example"
    with scripted("text: hi", SETTINGS) as server:
        assert (
            "access-control-allow-origin"
            not in httpx.options(server.url, headers=asked, timeout=PATIENCE).headers
        )


def test_keys_make_the_names_irrelevant(locked: Scripted, store: KeyStore) -> None:
    bearer = {"Authorization": f"Bearer {store.add('laptop')}"}
    assert status(locked, Host="my.server.example", **bearer) == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("notlocalhost", False),
        ("127.0.0.1.nip.example", False),
        ("2130706433", False),
        ("", False),
    ],
)
def test_what_names_this_machine(host: str, *, expected: bool) -> None:
    assert names_this_machine(host) is expected


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost", True),
        ("https://localhost:3000", True),
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:1", True),
        ("http://localhost.evil.example", False),
        ("http://notlocalhost", False),
        ("https://friend.example", True),
        ("https://evil.example", False),
        ("localhost", False),
    ],
)
def test_a_word_allows_all_pages_of_this_machine(origin: str, *, allowed: bool) -> None:
    settings = ServerSettings(port=0, cors_origins=["localhost", "https://friend.example"])
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    with scripted("text: hi", settings) as server:
        answer = httpx.options(f"{server.url}/v1/models", headers=headers, timeout=PATIENCE)
    assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)

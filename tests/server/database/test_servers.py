"""Two servers with one PostgreSQL: limits, keys, usage and responses are the same on both."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
from msgspec import structs
from msgspec.structs import replace

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.key import ApiKey, KeyLimits, KeyScope
from shepherd.server.access.keys import Keys, KeyStoreError
from shepherd.server.access.shared import keys_in
from shepherd.server.settings import ServerSettings
from shepherd.storage.postgres import Address, PostgresServer
from tests.patience import PATIENCE, POLL
from tests.postgres import RealPostgres
from tests.server.harness import CHAT, HI, RunningServer, Scripted

Pair = tuple[Scripted, Scripted]


def running(address: Address) -> Scripted:
    """A server with connections of its own."""
    database = PostgresServer(address)
    settings = ServerSettings(port=0, postgres=database)
    backend = ScriptedBackend(parse_script("text: come in"))
    return RunningServer(backend, settings, keys_in(database))


@pytest.fixture(scope="module")
def address(postgres: RealPostgres) -> Address:
    return postgres.new_database()


@pytest.fixture(scope="module")
def servers(address: Address) -> Iterator[Pair]:
    with running(address) as first, running(address) as second:
        yield first, second


@pytest.fixture(scope="module")
def keys(address: Address) -> Keys:
    """As the command line opens them."""
    return keys_in(PostgresServer(address))


def limited(**limits: int) -> Callable[[ApiKey], ApiKey]:
    return lambda key: structs.replace(key, limits=KeyLimits(**limits))


def administering(key: ApiKey) -> ApiKey:
    return structs.replace(key, scopes=frozenset({KeyScope.ADMIN}))


def unrestricted(key: ApiKey) -> ApiKey:
    return key


Change = Callable[[ApiKey], ApiKey]


def post(server: Scripted, key: str, path: str = CHAT, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    data = body or {"messages": HI}
    return httpx.post(server.url + path, json=data, headers=headers, timeout=PATIENCE)


def get(server: Scripted, key: str, path: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.get(server.url + path, headers=headers, timeout=PATIENCE)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL)


def add(keys: Keys, servers: Pair, name: str, change: Change = unrestricted) -> str:
    """A new key that both servers know."""
    secret = keys.add(name, change)
    for server in servers:
        until(lambda server=server: get(server, secret, "/v1/models").status_code == 200)
    return secret


def test_limits_hold_across_servers(servers: Pair, keys: Keys) -> None:
    requests = add(keys, servers, "requests", limited(requests_per_minute=7, tokens_per_day=10**6))
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(partial(post, key=requests), servers * 12))
    assert sorted(a.status_code for a in answers) == [200] * 7 + [429] * 17
    refused = next(a for a in answers if a.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    tokens = add(keys, servers, "tokens", limited(tokens_per_minute=40))
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(partial(post, key=tokens), servers * 12))
    assert {a.status_code for a in answers} == {200, 429}
    done = [a.json()["usage"]["total_tokens"] for a in answers if a.status_code == 200]
    assert sum(done) <= 40


def test_a_key_removed_on_one_server_is_refused_by_the_other(servers: Pair, keys: Keys) -> None:
    key = add(keys, servers, "removed")
    rotated = keys.rotate("removed")
    for server in servers:
        until(lambda server=server: post(server, rotated).status_code == 200)
        assert post(server, key).status_code == 401
    keys.remove("removed")
    for server in servers:
        until(lambda server=server: post(server, rotated).status_code == 401)


def test_responses_and_usage_are_those_of_all_servers(servers: Pair, keys: Keys) -> None:
    first, second = servers
    key, other = add(keys, servers, "mine"), add(keys, servers, "others")
    made = post(first, key, "/v1/responses", input="hi").json()
    path = f"/v1/responses/{made['id']}"
    assert get(second, key, path).json()["output"] == made["output"]
    assert get(second, other, path).status_code == 404
    body = {"input": "and?", "previous_response_id": made["id"]}
    assert post(second, key, "/v1/responses", **body).status_code == 200
    admin = add(keys, servers, "admin", administering)

    def used() -> int:
        rows = get(first, admin, "/v1/usage?key=mine").json()["data"]
        return sum(row["requests"] for row in rows)

    until(lambda: used() == 2)


def add_key(address: Address, number: int) -> None:
    keys_in(PostgresServer(address)).add(f"k{number}")


def test_servers_that_start_at_once_make_the_tables_once(postgres: RealPostgres) -> None:
    address = postgres.new_database()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(partial(add_key, address), range(6)))
    assert len(list(keys_in(PostgresServer(address)).keys())) == 6


class Load:
    """Posts to servers from threads until it is stopped; counts the answers by status."""

    def __init__(self, servers: Pair, key: str) -> None:
        self.answers: list[httpx.Response] = []
        self._stop = threading.Event()
        self._work = [
            threading.Thread(target=self._post, args=(server, key)) for server in servers * 2
        ]
        for work in self._work:
            work.start()

    def count(self, status: int) -> int:
        return sum(answer.status_code == status for answer in list(self.answers))

    def stop(self) -> None:
        self._stop.set()
        for work in self._work:
            work.join(PATIENCE)

    def _post(self, server: Scripted, key: str) -> None:
        while not self._stop.is_set():
            self.answers.append(post(server, key))
            self._stop.wait(5 * POLL)


def test_requests_go_on_while_the_database_is_killed_and_all_count_once(
    servers: Pair, keys: Keys, postgres: RealPostgres
) -> None:
    free = add(keys, servers, "free")
    key = add(keys, servers, "loaded", limited(requests_per_day=10**6, tokens_per_day=10**9))
    full = add(keys, servers, "full", limited(requests_per_day=3))
    unknown = add(keys, servers, "unknown", limited(requests_per_day=9))
    for server in (*servers, servers[0]):
        assert post(server, full).status_code == 200
    load = Load(servers, key)
    try:
        until(lambda: load.count(200) > 10)
        postgres.kill()
        during = load.count(200)
        until(lambda: load.count(200) > during + 10)
        for server in servers:
            assert get(server, "", "/ready").status_code == 200
            assert post(server, free).status_code == 200
        assert post(servers[0], full).status_code == 429
        refusal = post(servers[0], unknown)  # what other servers count against it is not known
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "limits_unavailable")
        postgres.start()
        before = load.count(200)
        until(lambda: load.count(200) > before + 10)
    finally:
        load.stop()
    assert {answer.status_code for answer in load.answers} == {200}
    served = load.count(200)

    def used(server: Scripted) -> int:
        rows = get(server, key, "/v1/usage").json()["data"]
        return sum(row["requests"] for row in rows)

    for server in servers:  # each writes what it still has before it reads
        until(lambda server=server: get(server, key, "/v1/usage").status_code == 200)
    # a commit whose answer the crash has lost is made again: one for each server, of a few requests
    assert served <= used(servers[0]) <= served + 8

    def all_count() -> bool:
        nonlocal served
        served += 1
        left = int(post(servers[0], key).headers["x-ratelimit-remaining-requests"])
        assert 10**6 - left <= served + 8
        return 10**6 - left >= served - during  # the crash loses those just before it

    until(all_count)


def test_keys_stay_valid_for_their_grace(postgres: RealPostgres) -> None:
    address = postgres.new_database()
    secret = keys_in(PostgresServer(address)).add("k")
    lasting, short = (keys_in(PostgresServer(address), grace) for grace in (PATIENCE, 0.5))
    for keys in (lasting, short):
        keys.keys()
    time.sleep(0.6)  # as a model that loads, after which nobody is refused
    assert short.find(secret) is not None
    assert lasting.find(secret) is not None
    postgres.kill()
    try:
        until(lambda: refuses(short, secret))
        assert lasting.find(secret) is not None
        assert lasting.find("sk-shep-x") is None
    finally:
        postgres.start()
    until(lambda: not refuses(short, secret))


def refuses(keys: Keys, secret: str) -> bool:
    try:
        keys.find(secret)
    except KeyStoreError:
        return True
    return False


def test_a_wrong_password_is_an_error_without_the_password(address: Address) -> None:
    wrong = replace(address, password="secret-word")
    assert "secret-word" not in f"{wrong} {wrong!r}"
    with pytest.raises(KeyStoreError, match="password authentication failed") as caught:
        keys_in(PostgresServer(wrong)).keys()
    assert "secret-word" not in str(caught.value)
    assert "`shepherd database password` stores the password" in str(caught.value)

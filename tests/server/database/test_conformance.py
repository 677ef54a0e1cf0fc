"""The stores of the server do the same in SQLite and in PostgreSQL."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.database import DatabaseFile
from shepherd.errors import ShepherdError
from shepherd.events import Stats
from shepherd.messages import Message
from shepherd.server.access import shared, usage
from shepherd.server.access.key import ApiKey, KeyLimits, KeyScope
from shepherd.server.access.keys import Admission, Keys, KeyStore, KeyStoreError
from shepherd.server.access.meter import Meter, Work
from shepherd.server.access.shared import LEASE_SECONDS, LimitsError, SharedLimits, keys_in
from shepherd.server.access.usage import Usage, UsageError, UsageStore
from shepherd.server.errors import ApiError
from shepherd.server.openai_responses.store import (
    DAY_SECONDS,
    MIB,
    MIGRATIONS,
    ResponseStore,
    StoredResponse,
)
from shepherd.server.record import RequestRecord, recording
from shepherd.session import Session
from shepherd.storage.postgres import PostgresDatabase, PostgresServer
from shepherd.storage.rows import Database

NOW = 2_000_000_000.0
Place = Callable[[str, tuple[str, ...]], Database]


class PlaceError(ShepherdError):
    """A database can't be used."""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Opens the database of a store; further calls open the same one again."""
    if request.param == "sqlite":

        def on_damage(error: Exception, path: Path) -> None:
            raise error

        return lambda store, migrations: DatabaseFile(
            tmp_path / f"{store}.db", migrations, on_damage, PlaceError
        )
    address = request.getfixturevalue("postgres").new_database()
    return lambda store, migrations: PostgresDatabase(
        PostgresServer(address), store, migrations, PlaceError
    )


def limited(**limits: int) -> ApiKey:
    return ApiKey("k", "", "a" * 64, datetime(2031, 1, 1, tzinfo=UTC), limits=KeyLimits(**limits))


def test_usage_is_added_up_by_all_stores(place: Place) -> None:
    first, second = (UsageStore(place("usage", usage.MIGRATIONS)) for _ in range(2))
    day = datetime.now(UTC).date().isoformat()
    old = (datetime.now(UTC) - timedelta(days=5)).date().isoformat()
    for store in (first, second, first):
        store.add(Usage(day, "k", "m", prompt_tokens=2**31, completion_tokens=1))
    second.add(Usage(old, "k", "m"))
    for cost in (None, 0.5, None, 0.25):
        second.add(Usage(day, "l", "m", cost=cost))
    for store in (first, second):
        store.flush()
    assert first.read(2, "k").result() == [Usage(day, "k", "m", 3, 3 * 2**31, 0, 3)]
    assert [(row.key, row.cost) for row in second.read(9).result()] == [
        ("k", None),
        ("l", 0.75),
        ("k", None),
    ]
    first.delete_older(4)
    assert [row.key for row in first.read(9).result()] == ["k", "l"]
    first.note_use("k", 50)
    second.note_use("k", 40)
    first.flush()
    second.flush()
    assert first.last_used() == {"k": 50}


def test_tables_of_an_older_version_are_kept_and_brought_up_to_date(place: Place) -> None:
    first = "CREATE TABLE words (word TEXT)"
    old = place("words", (first,))
    old.run(lambda rows: rows.execute("INSERT INTO words VALUES ('kept')"))
    old.close()
    new = place("words", (first, "ALTER TABLE words ADD COLUMN number BIGINT"))
    rows = new.run(lambda rows: rows.execute("SELECT word, number FROM words").fetchall())
    assert rows == [("kept", None)]


def stored(id: str, previous: str | None = None, size: int = 10) -> StoredResponse:
    output = [{"id": f"item_{id}", "text": "\x00é\ud800"}]
    body: dict[str, Any] = {"id": id, "previous_response_id": previous, "output": output}
    return StoredResponse({**body, "x": "x" * size}, [{"id": f"in_{id}"}])


async def test_responses_belong_to_their_owner(place: Place) -> None:
    store = ResponseStore(place("responses", MIGRATIONS), days=2, max_mib=1)
    other = ResponseStore(place("responses", MIGRATIONS), days=2, max_mib=1)
    await store.save("me", stored("a"))
    await store.save("me", stored("b", "a"))
    await store.save("me", stored("b", "a"))
    assert await other.load("me", "a") == stored("a")
    chain = await other.load_chain("me", "b", MIB)
    assert [item["id"] for item in chain.items] == ["in_a", "item_a", "in_b", "item_b"]
    assert (await other.load_chain("me", "b", 10)).bytes == chain.bytes > 10
    assert await other.load("you", "a") is None
    assert (await other.load_chain("you", "b", MIB)).missing == "b"
    assert await other.find_items("you", ["item_a"]) == {}
    assert list(await other.find_items("me", ["item_a", "no", "\x00"])) == ["item_a"]
    assert not await other.delete("you", "a")
    assert await other.delete("me", "a")
    assert (await store.load_chain("me", "b", MIB)).missing == "a"
    for odd in ("\x00", "' OR 1", "%s", "ü" * 3000):
        assert await store.load("me", odd) is None


async def test_responses_expire_and_make_room(place: Place) -> None:
    now = 1_000_000.0
    stores = [ResponseStore(place("responses", MIGRATIONS), 2, 1, lambda: now) for _ in range(4)]
    for number, store in enumerate(stores):  # each prunes with its first response
        now += 1
        await store.save("me", stored(f"r{number}", size=400_000))
    store = stores[0]
    loaded = [await store.load("me", f"r{number}") for number in range(4)]
    assert [response is not None for response in loaded] == [False, False, True, True]
    now += 3 * DAY_SECONDS
    assert await store.load("me", "r3") is None


def names(keys: Keys) -> list[str]:
    return [key.name for key in list(keys.keys())]


@pytest.fixture(params=["file", "postgres"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Keys]:
    """Opens the keys; further calls open the same ones again."""
    if request.param == "file":
        return lambda: KeyStore(tmp_path / "keys.json")
    address = request.getfixturevalue("postgres").new_database()
    return lambda: keys_in(PostgresServer(address))


def test_keys_are_made_changed_and_removed(keys: Callable[[], Keys]) -> None:
    store = keys()
    limits = KeyLimits(tokens_per_day=9)
    first = store.add("first", lambda key: replace(key, limits=limits, models=("m*",), note="n"))
    second = store.add("second", lambda key: replace(key, scopes=frozenset({KeyScope.ADMIN})))
    assert names(keys()) == ["first", "second"]
    entry = keys().find(first)
    assert entry is not None
    assert (entry.name, entry.limits, entry.models, entry.note) == ("first", limits, ("m*",), "n")
    assert keys().verify(second) == "second"
    rotated = store.rotate("first", timedelta(hours=1))
    assert keys().verify(first) == keys().verify(rotated) == "first"
    assert store.rotate("first") != rotated
    assert keys().verify(rotated) is None
    assert names(keys()) == ["first", "second"]
    store.remove("second")
    assert keys().verify(second) is None
    for wrong in ("", "\x00", "\ud800", "ключ"):
        assert keys().find(wrong) is None
    for name in ("second", "\x00"):
        with pytest.raises(KeyStoreError, match="No key is called"):
            store.remove(name)
    with pytest.raises(KeyStoreError, match="already"):
        store.add("first")


def test_no_key_is_lost_when_several_are_made_at_once(keys: Callable[[], Keys]) -> None:
    def add(number: int) -> None:
        keys().add(f"k{number}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, range(12)))
    assert set(names(keys())) == {f"k{number}" for number in range(12)}


class Clock:
    """A clock that all servers share."""

    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(place: Place, clock: Clock) -> Callable[[], SharedLimits]:
    """Makes the limits of one more server."""
    migrations = shared.MIGRATIONS
    return lambda: SharedLimits(place("limits", migrations), None, clock, threads=1)


async def test_requests_are_counted_across_servers(
    limits: Callable[[], SharedLimits], clock: Clock
) -> None:
    key = limited(requests_per_minute=5, requests_per_day=7)
    servers = [limits() for _ in range(3)]
    work = (servers[n % 3].count_request(key) for n in range(20))
    results = await asyncio.gather(*work, return_exceptions=True)
    refused = [error for error in results if isinstance(error, ApiError)]
    assert (len(refused), {error.status for error in refused}) == (15, {429})
    admitted = next(headers for server in servers if (headers := server.headers(key)))
    assert admitted["x-ratelimit-limit-requests"] == "5"
    clock.now += 62
    for server in servers[:2]:
        await server.count_request(key)
    with pytest.raises(ApiError, match="requests per day"):
        await servers[2].count_request(key)
    clock.now -= 1000
    with pytest.raises(ApiError, match="requests per day"):
        await limits().count_request(key)


async def test_a_request_is_counted_in_the_transaction_that_reserves_its_tokens(
    tmp_path: Path, clock: Clock
) -> None:
    class Counted(DatabaseFile):
        transactions: int = 0

        def run(self, work: Any, *, write: bool = True) -> Any:
            self.transactions += 1
            return super().run(work, write=write)

    path, failure = tmp_path / "l.db", LimitsError
    disk = Counted(path, shared.MIGRATIONS, lambda _error, _path: None, failure)
    own, other = (SharedLimits(disk, None, clock, threads=1) for _ in range(2))
    key = limited(requests_per_day=4, tokens_per_day=100)
    assert await own.count_request(key, reserves=True)  # nothing is known of the key yet
    before = disk.transactions
    assert not await own.count_request(key, reserves=True)
    assert await own.reserve_tokens(key, 9, 9, requests=1) == 9
    assert disk.transactions == before + 1
    await other.count_request(key)
    for _ in range(2):  # both may go on for the one request that is left
        assert not await own.count_request(key, reserves=True)
    assert await own.reserve_tokens(key, 9, 9, requests=1) == 9
    with pytest.raises(ApiError, match="requests per day"):
        await own.reserve_tokens(key, 9, 9, requests=1)
    with pytest.raises(ApiError, match="requests per day"):
        await own.count_request(key, reserves=True)
    assert own.headers(key)["x-ratelimit-remaining-tokens"] == "82"


async def test_a_turn_gives_tokens_back_for_its_sub_agents(
    limits: Callable[[], SharedLimits],
) -> None:
    own, backend = limits(), ScriptedBackend(parse_script("text: hi"))
    meter = Meter(None, own)
    session = Session(messages=[Message.user("hi")])
    prompt = await backend.count_session_tokens(session)
    done = Stats(prompt_tokens=prompt, completion_tokens=10)
    turn, task = Work([session], 1, 0), Work([session], 1, 0)
    budget = meter.budget()
    admission = Admission(limited(tokens_per_day=100), KeyStore(Path()), "")
    with recording(RequestRecord("", admission=admission), {}):
        async with budget.measured(backend, turn):
            with pytest.raises(ApiError, match="left 0"):
                await meter.budget().measured(backend, task).__aenter__()
            budget.give_back(done)
            async with meter.budget().measured(backend, task):
                assert task.max_tokens == 90 - 2 * prompt
                task.stats = [done]
            assert await budget.next_round(session, done) == 80 - 3 * prompt
            turn.stats = [done]
        await meter.check_tokens()
        own.flush()  # the token that was checked goes back in a thread
        free = await limits().reserve_tokens(limited(tokens_per_day=100), 1, 1000)
    assert free == 80 - 2 * prompt


async def test_tokens_are_held_until_they_are_settled(
    limits: Callable[[], SharedLimits], clock: Clock
) -> None:
    key = limited(tokens_per_minute=100)
    first, second = limits(), limits()
    assert await first.reserve_tokens(key, 10, 60) == 60
    assert await second.reserve_tokens(key, 10, 60) == 40
    with pytest.raises(ApiError, match="tokens per minute"):
        await first.reserve_tokens(key, 1, 1)
    first.settle_tokens(key, 60, 20)
    assert await first.reserve_tokens(key, 1, 99) == 40
    first.settle_tokens(key, 40, 0)
    first.flush()
    second.settle_tokens(key, 40, 5)
    assert second.headers(key)["x-ratelimit-limit-tokens"] == "100"
    second.flush()
    assert await limits().reserve_tokens(key, 1, 99) == 75


async def test_tokens_of_a_server_that_is_gone_are_free_again(
    limits: Callable[[], SharedLimits], clock: Clock
) -> None:
    key = limited(tokens_per_day=100)
    gone, alive = limits(), limits()
    await gone.reserve_tokens(key, 80, 80)
    await alive.reserve_tokens(key, 20, 20)
    clock.now += LEASE_SECONDS / 2
    await alive.count_request(key)
    with pytest.raises(ApiError):
        await limits().reserve_tokens(key, 1, 1)
    clock.now += LEASE_SECONDS / 2 + 1
    assert await limits().reserve_tokens(key, 1, 999) == 80
    with pytest.raises(ApiError):
        await alive.reserve_tokens(key, 1, 1)


async def test_a_request_that_ends_meanwhile_holds_nothing(
    limits: Callable[[], SharedLimits],
) -> None:
    key = limited(tokens_per_minute=10)
    server = limits()
    for _ in range(20):
        work = asyncio.ensure_future(server.reserve_tokens(key, 10, 10))
        await asyncio.sleep(0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    async with asyncio.timeout(30):
        while True:  # what was reserved is settled in the background
            try:
                assert await server.reserve_tokens(key, 10, 10) == 10
                break
            except ApiError:
                await asyncio.sleep(0.01)


async def test_a_clock_that_jumped_ahead_and_back_locks_nobody_out(
    limits: Callable[[], SharedLimits], clock: Clock
) -> None:
    key = limited(requests_per_minute=2, tokens_per_minute=10)
    server = limits()
    clock.now += 5 * 3600
    await server.count_request(key)
    await server.reserve_tokens(key, 10, 10)
    server.settle_tokens(key, 10, 10)
    server.flush()
    clock.now -= 5 * 3600
    await server.count_request(key)
    for refused in (server.count_request(key), limits().reserve_tokens(key, 1, 1)):
        with pytest.raises(ApiError, match="per minute"):
            await refused
    clock.now += 62
    await server.count_request(key)
    await limits().reserve_tokens(key, 10, 10)


async def test_a_full_disk_stops_nobody_and_all_counts_when_it_has_space_again(
    tmp_path: Path, clock: Clock
) -> None:
    class Disk(DatabaseFile):
        full: bool = False

        def run(self, work: Any, *, write: bool = True) -> Any:
            if self.full:
                raise LimitsError("the disk is full")
            return super().run(work, write=write)

    disk = Disk(tmp_path / "l.db", shared.MIGRATIONS, lambda _error, _path: None, LimitsError)
    own = SharedLimits(disk, None, clock, threads=1)
    key = limited(requests_per_day=5, tokens_per_day=100)
    await own.count_request(key)
    assert await own.reserve_tokens(key, 1, 30) == 30
    disk.full = True
    for _ in range(4):
        await own.count_request(key)
    with pytest.raises(ApiError, match="requests per day"):
        await own.count_request(key)
    assert await own.reserve_tokens(key, 1, 99) == 70
    own.settle_tokens(key, 30, 5)
    own.settle_tokens(key, 70, 10)
    assert await own.reserve_tokens(key, 1, 99) == 85
    with pytest.raises(ApiError, match="can't be checked"):
        await own.count_request(replace(key, name="unknown"))
    disk.full = False
    own.flush()
    other = SharedLimits(disk, None, clock, threads=1)
    with pytest.raises(ApiError, match="requests per day"):
        await other.count_request(key)
    with pytest.raises(ApiError, match="tokens per day"):
        await other.reserve_tokens(key, 1, 1)  # the other one holds the 85
    own.settle_tokens(key, 85, 0)
    own.flush()
    assert await other.reserve_tokens(key, 1, 99) == 85


@pytest.mark.parametrize(
    ("migrations", "failure"),
    [(usage.MIGRATIONS, UsageError), (shared.MIGRATIONS, LimitsError)],
)
def test_tables_of_a_newer_version_are_refused(
    server: PostgresServer, migrations: tuple[str, ...], failure: type[ShepherdError]
) -> None:
    store = failure.__name__.lower()
    newer = (*migrations, "CREATE TABLE more_" + store + " (x TEXT)")
    PostgresDatabase(server, store, newer, failure).run(str)
    with pytest.raises(failure, match="newer Shepherd"):
        PostgresDatabase(server, store, migrations, failure).run(str)

"""Key files, expiry, and rotation."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.server.access.key import (
    MAX_LIMIT,
    ApiKey,
    KeyLimits,
    KeyScope,
    OldSecret,
    format_keys,
    parse_keys,
)
from shepherd.server.access.keys import KeyStore, KeyStoreError

START = datetime(2031, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)

TIMES = st.integers(0, 8_000 * 365 * 24).map(
    lambda hours: datetime(1980, 1, 1, tzinfo=UTC) + hours * HOUR
)
HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)
AMOUNTS = st.none() | st.integers(1, MAX_LIMIT)
KEYS = st.builds(
    ApiKey,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    prefix=st.text(max_size=9),
    sha256=HASHES,
    created=TIMES,
    note=st.text(max_size=20),
    expires=st.none() | TIMES,
    scopes=st.frozensets(st.sampled_from(KeyScope)),
    models=st.lists(st.from_regex(r"[a-z/*-]{1,9}", fullmatch=True)).map(tuple),
    limits=st.builds(KeyLimits, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS),
    old_secret=st.none() | st.builds(OldSecret, HASHES, TIMES),
)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> KeyStore:
    return KeyStore(tmp_path / "keys.json", clock)


def expiring(moment: datetime) -> Callable[[ApiKey], ApiKey]:
    return lambda key: replace(key, expires=moment)


@given(st.lists(KEYS, unique_by=lambda key: key.name, max_size=3))
def test_all_fields_come_back(keys: list[ApiKey]) -> None:
    assert parse_keys(format_keys(keys).encode()) == keys


@pytest.mark.parametrize("version", [1, 3])
def test_a_file_of_another_version_closes_the_door_and_stays(store: KeyStore, version: int) -> None:
    secret = store.add("old")
    other = json.loads(store.path.read_text()) | {"version": version}
    store.path.write_text(json.dumps(other))
    for use in (lambda: store.verify(secret), lambda: store.add("new")):
        with pytest.raises(KeyStoreError, match=f"unknown version {version}"):
            use()
    assert json.loads(store.path.read_text()) == other


def test_a_key_neither_approves_nor_rules_unless_it_is_made_for_that(store: KeyStore) -> None:
    store.add("k")
    assert store.get("k").scopes == set(KeyScope) - {KeyScope.APPROVE, KeyScope.ADMIN}


def entry_with(**changes: Any) -> dict[str, Any]:
    key = ApiKey("k", "sk", "a" * 64, START)
    entry: dict[str, Any] = json.loads(format_keys([key]))["keys"][0]
    return entry | changes


LIMITS = entry_with()["limits"]


@pytest.mark.parametrize(
    "changes",
    [
        {"scopes": ["chat", "everything"]},
        {"scopes": "chat"},
        {"scopes": None},
        {"expires": "tomorrow"},
        {"expires": "2031-01-01T00:00:00"},
        {"expires": 1},
        {"models": ["a b"]},
        {"models": "qwen"},
        {"limits": LIMITS | {"tokens_per_day": 0}},
        {"limits": LIMITS | {"tokens_per_day": -1}},
        {"limits": LIMITS | {"tokens_per_day": True}},
        {"limits": LIMITS | {"tokens_per_day": "9"}},
        {"limits": LIMITS | {"tokens_per_day": 1.5}},
        {"limits": LIMITS | {"tokens_per_hour": 5}},
        {"limits": {}},
        {"old_secret": {"sha256": "", "until": "2031-01-01T00:00:00Z"}},
        {"old_secret": {"sha256": "b" * 64}},
        {"sha256": "A" * 64},
        {"sha256": "a" * 64 + "\n"},
        {"name": "../k"},
        {"only_on_sundays": True},
    ],
)
def test_a_restriction_that_is_not_understood_closes_the_door(
    store: KeyStore, changes: dict[str, Any]
) -> None:
    store.add("k")
    data = {"version": 2, "keys": [entry_with(**changes)]}
    store.path.write_text(json.dumps(data))
    with pytest.raises(KeyStoreError, match="damaged"):
        store.verify("x")


def test_two_keys_of_one_name_close_the_door(store: KeyStore) -> None:
    secret = store.add("k")
    entry = json.loads(store.path.read_text())["keys"][0]
    store.path.write_text(json.dumps({"version": 2, "keys": [entry, entry]}))
    with pytest.raises(KeyStoreError, match="damaged"):
        store.verify(secret)


def test_a_deeply_nested_file_closes_the_door(store: KeyStore) -> None:
    secret = store.add("k")
    store.path.write_text("[" * 1_000_000)
    with pytest.raises(KeyStoreError, match="damaged"):
        store.verify(secret)


def test_a_key_ends_at_its_time_and_no_clock_revives_it(store: KeyStore, clock: Clock) -> None:
    secret = store.add("k", expiring(START + HOUR))
    clock.now = START + HOUR - timedelta(seconds=1)
    assert store.verify(secret) == "k"
    clock.now = START + HOUR
    assert store.verify(secret) is None
    clock.now = START - 9 * HOUR
    assert store.verify(secret) is None


def test_the_old_secret_is_valid_for_its_grace_only(store: KeyStore, clock: Clock) -> None:
    first = store.add("k", expiring(START + 9 * HOUR))
    before = store.get("k")
    second = store.rotate("k", HOUR)
    assert store.verify(first) == store.verify(second) == "k"
    assert replace(store.get("k"), old_secret=None) == replace(
        before, prefix=store.get("k").prefix, sha256=store.get("k").sha256
    )
    clock.now = START + HOUR
    assert store.verify(first) is None
    clock.now = START
    assert store.verify(first) is None
    assert store.verify(second) == "k"
    clock.now = START + 9 * HOUR
    assert store.verify(second) is None


def test_without_grace_the_old_secrets_end_at_once(store: KeyStore) -> None:
    first = store.add("k")
    second = store.rotate("k", HOUR)
    third = store.rotate("k")
    assert [store.verify(secret) for secret in (first, second, third)] == [None, None, "k"]
    with pytest.raises(KeyStoreError, match="No key is called"):
        store.rotate("l")

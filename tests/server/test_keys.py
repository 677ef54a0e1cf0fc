"""API keys: what opens the door, and what closes it."""

import json
import multiprocessing
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from shepherd.server.access.key import ApiKey
from shepherd.server.access.keys import KeyStore, KeyStoreError
from tests.patience import PATIENCE


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "config" / "keys.json")


def test_a_key_opens_until_it_is_removed_without_a_restart(store: KeyStore) -> None:
    running = KeyStore(store.path)
    assert running.verify("sk-shep-x") is None
    first, second = store.add("first"), store.add("second")
    assert (running.verify(first), running.verify(second)) == ("first", "second")
    store.remove("first")
    assert (running.verify(first), running.verify(second)) == (None, "second")
    store.path.unlink()
    assert running.verify(second) is None


class TwoReaders(KeyStore):
    """Another thread reads the keys at the moment at which the first reader has read them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.began = threading.Event()
        self.go = threading.Event()
        self.other = threading.Thread(target=self.keys)

    def _reload(self) -> None:
        super()._reload()
        if threading.current_thread() is not self.other:
            self.path.touch()  # so the other one reads the file again
            self.other.start()
            self.began.wait(0.1)

    def _parse(self, content: bytes) -> list[ApiKey]:
        if threading.current_thread() is self.other:
            self.began.set()
            self.go.wait(PATIENCE)
        return super()._parse(content)


def test_no_key_is_missing_while_another_thread_reads(store: KeyStore) -> None:
    key = store.add("k")
    running = TwoReaders(store.path)
    found = running.find(key)
    running.go.set()
    running.other.join(PATIENCE)
    assert found is not None


def test_keys_are_long_random_and_not_stored(store: KeyStore) -> None:
    keys = [store.add(f"k{n}") for n in range(5)]
    assert len(set(keys)) == 5
    assert all(re.fullmatch(r"sk-shep-[A-Za-z0-9_-]{43}", key) for key in keys)
    content = store.path.read_text()
    assert not any(key in content or key[8:] in content for key in keys)


@pytest.mark.parametrize(
    "wrong", ["", "sk-shep-", "x", "\ud800", "ключ", "\x00", "sk-shep-" + "A" * 43]
)
def test_nothing_else_opens(store: KeyStore, wrong: str) -> None:
    key = store.add("k")
    for text in (wrong, key + wrong, key[:-1], key.upper(), f" {key}"):
        assert text == key or store.verify(text) is None


def test_the_file_is_private_from_its_creation(store: KeyStore) -> None:
    before = os.umask(0)
    try:
        store.add("k")
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_another_user_s_file_closes_the_door(
    store: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = store.add("k")
    owner = store.path.stat().st_uid
    if owner == 0:  # the file becomes another user's
        os.chown(store.path, 12_345, -1)
    else:  # the user becomes another
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(KeyStoreError, match="another user's"):
        KeyStore(store.path).verify(key)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620])
def test_a_file_open_to_others_closes_the_door(store: KeyStore, mode: int) -> None:
    key = store.add("k")
    assert store.verify(key) == "k"
    store.path.chmod(mode)
    for use in (lambda: store.verify(key), lambda: store.add("l"), store.keys):
        with pytest.raises(KeyStoreError, match="chmod 600"):
            use()
    store.path.chmod(0o600)
    assert store.verify(key) == "k"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"version": 1}',
        b'{"version": 1, "keys": [{"name": "k"}]}',
        b'{"version": 1, "keys": [1]}',
        b'{"version": 1, "keys": {"name": 1}}',
        b'{"version": 3, "keys": []}',
        b'{"version": "2", "keys": []}',
        b'{"version": true, "keys": []}',
        b'{"version": 1, "keys": [], "more": 1}',
        b'{"version": 2, "keys": [{"name": "k"}]}',
        b'{"version": 1, "keys": [{"name": 1, "prefix": "", "sha256": "", "created": ""}]}',
    ],
)
def test_a_damaged_file_closes_the_door(store: KeyStore, content: bytes) -> None:
    key = store.add("k")
    assert store.verify(key) == "k"
    store.path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(KeyStoreError, match=re.escape(str(store.path))):
            store.verify(key)


def test_a_file_cut_anywhere_never_opens_more(store: KeyStore) -> None:
    key = store.add("k")
    whole = store.path.read_bytes()
    for length in range(len(whole) - 1):
        store.path.write_bytes(whole[:length])
        with pytest.raises(KeyStoreError):
            store.verify(key)


def test_what_can_not_be_read_closes_the_door(store: KeyStore, tmp_path: Path) -> None:
    store.path.mkdir(parents=True, mode=0o700)
    with pytest.raises(KeyStoreError, match="can't be read"):
        store.verify("x")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(KeyStoreError, match="can't be read"):
        KeyStore(blocked / "keys.json").verify("x")


@pytest.mark.parametrize("name", ["", " ", "a b", "../x", "-x", "a\n", "ä", "x" * 65])
def test_odd_names_are_refused(store: KeyStore, name: str) -> None:
    with pytest.raises(KeyStoreError, match="can't be a key's name"):
        store.add(name)
    assert not store.path.exists()


def test_names_are_unique_and_must_exist(store: KeyStore) -> None:
    store.add("k")
    with pytest.raises(KeyStoreError, match="already"):
        store.add("k")
    with pytest.raises(KeyStoreError, match="No key is called"):
        store.remove("l")
    stored = store.keys()
    assert [entry.name for entry in stored] == ["k"]


def add_some(path: Path, who: str) -> None:
    for number in range(10):
        KeyStore(path).add(f"{who}{number}")


def test_no_key_is_lost_when_several_are_made_at_once(store: KeyStore) -> None:
    context = multiprocessing.get_context("spawn")
    makers = [context.Process(target=add_some, args=(store.path, who)) for who in "ab"]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(store.keys()) == 20
    assert json.loads(store.path.read_text())["version"] == 2

"""Files are replaced whole, and nothing is left behind: no file and no descriptor."""

import contextlib
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shepherd.config.files import write_private
from shepherd.server.access.keys import KeyStore
from shepherd.tools.files.access import write_atomic

OPEN_FILES = Path("/proc/self/fd")


def descriptors() -> int:
    return len(list(OPEN_FILES.iterdir()))


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="descriptors are counted in /proc")
def test_no_way_of_writing_leaks_a_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path.resolve()
    (base / "link").symlink_to(base)
    os.mkfifo(base / "fifo")
    (base / "folder").mkdir()
    before = descriptors()
    for path in ("file", "new/a/b", "link/file", "fifo", "folder", "file/x", "n" * 300):
        with contextlib.suppress(OSError):
            write_atomic(base / path, b"x")
        with contextlib.suppress(OSError):
            write_private(base / path, "x")
        assert descriptors() == before, path

    def fail(*_: object, **__: object) -> None:
        raise OSError("no")

    for step in ("fsync", "replace", "fchmod", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fail)
            for write in (
                lambda: write_atomic(base / "file", b"y"),
                lambda: write_private(base / "file", "y"),
            ):
                with contextlib.suppress(OSError):
                    write()
        assert descriptors() == before, step
    assert sorted(p.name for p in base.iterdir()) == ["fifo", "file", "folder", "link", "new"]


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])
def test_a_failed_write_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, unnamed: bool
) -> None:
    file = tmp_path.resolve() / "file"
    write_atomic(file, b"old")
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write_atomic(file, b"new" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]


def test_where_files_must_have_names_they_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    file = tmp_path.resolve() / ("n" * 255)
    write_atomic(file, b"x")
    file.chmod(0o600)
    write_atomic(file, b"y")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"y"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    keep = [".keys.json.0123456789ab.bak", "keys.json.0123456789ab", ".other.json.0123456789ab"]
    for name in [*keep, ".keys.json.0123456789ab", ".keys.json.ffffffffffff"]:
        (tmp_path / name).touch()
    KeyStore(tmp_path / "keys.json").add("one")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [*keep, "keys.json", ".keys.json.lock"]
    )


_ADD_KEYS = """
import sys
from pathlib import Path
from shepherd.server.access.keys import KeyStore

store = KeyStore(Path(sys.argv[1]))
print("ready", flush=True)
for number in range(100_000):
    store.add(f"k{number}")
    store.remove(f"k{number}")
"""


def test_a_killed_process_leaves_at_most_what_the_next_one_removes(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    for number in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", _ADD_KEYS, str(keys)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.01 + number / 300)
            process.send_signal(signal.SIGKILL)
        store = KeyStore(keys)
        names = [key.name for key in store.keys()]  # noqa: SIM118 - not a dictionary
        for name in names:
            store.remove(name)
        store.add("mine")
        store.remove("mine")
        assert sorted(p.name for p in tmp_path.iterdir()) == [".keys.json.lock", "keys.json"]

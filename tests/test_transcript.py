"""Session files: what was written comes back, whatever happened to the process or the file."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.errors import SessionError
from shepherd.messages import INTERRUPTED, Message
from shepherd.session import Session
from shepherd.transcript import SessionStore
from shepherd.transcript.store import new_id
from tests.transcripts import begin, filled, is_valid, journal, reopen


def filled_file(directory: Path, count: int = 4) -> tuple[Session, Path]:
    """A closed session with `count` turns, and its file."""
    session = filled(SessionStore(directory), count)
    return session, directory / f"{session.id}.jsonl"


def test_a_file_cut_anywhere_loads_and_goes_on(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    whole, path = filled_file(tmp_path, count=2)
    content = path.read_bytes()
    header = content.index(b"\n")
    ends = [n + d for n in range(len(content)) if content[n] == 10 for d in (0, 1, 2)]
    for length in sorted({*range(header, len(content), 11), *ends} - {len(content) + 1}):
        path.write_bytes(content[:length])
        session = reopen(store, whole.id)
        real = [m for m in session.messages if m.content != INTERRUPTED]
        assert real == whole.messages[: len(real)]
        assert is_valid(session.messages)
        complete_lines = content[:length].count(b"\n") - 1
        assert len(real) - complete_lines in (0, 1)
        session.add(Message.user("more"))
        journal(session).close()
        again = store.read(whole.id)
        assert list(again.messages) == session.messages
        assert again.warnings == ()


def test_any_damaged_line_is_reported_and_costs_only_itself(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session, path = filled_file(tmp_path)
    resumed = reopen(store, session.id)
    resumed.evict([range(4)])
    journal(resumed).close()
    lines = path.read_bytes().split(b"\n")
    for number in range(1, len(lines) - 2):
        damaged = [*lines[:number], b'{"type": "mess\x00', *lines[number + 1 :]]
        path.write_bytes(b"\n".join(damaged))
        saved = store.read(session.id)
        assert saved.warnings == (f"{path}:{number + 1}: damaged line skipped",)
        assert is_valid(list(saved.messages))
        kept = [m for m in saved.messages if m.content != INTERRUPTED]
        lost = [m for m in session.messages[4:] if m not in kept]
        assert len(lost) <= 2  # a call that is lost takes its result with it
        assert all(m in session.messages[4:] for m in kept)


def test_an_empty_session_leaves_no_file(tmp_path: Path) -> None:
    session = begin(SessionStore(tmp_path / "sessions"))
    session.clear()
    journal(session).close()
    assert not (tmp_path / "sessions").exists()


def test_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        _, path = filled_file(tmp_path / "a" / "sessions")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(3000, 1, 1)),  # noqa: DTZ001 - all are in UTC
    st.timedeltas(timedelta(milliseconds=1), timedelta(days=9)),
)
def test_ids_are_in_the_order_of_their_times(begun: datetime, later: timedelta) -> None:
    assert new_id(begun) < new_id(begun + later)


@pytest.mark.parametrize(
    "header", ["", "{}", "[]", "x", '{"type": "message"}', '{"type": "session", "version": 99}']
)
def test_a_file_without_a_header_is_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "x.jsonl").write_text(f"{header}\n")
    with pytest.raises(SessionError, match=r"x\.jsonl:1: not a session"):
        SessionStore(tmp_path).read("x")


def test_a_file_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    session, path = filled_file(tmp_path)
    header, *lines = path.read_text().splitlines()
    newer = json.dumps({**json.loads(header), "version": 3})
    path.write_text("\n".join([newer, *lines]))
    with pytest.raises(SessionError, match="newer"):
        SessionStore(tmp_path).read(session.id)


WRITER = """
import itertools, sys
from pathlib import Path
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.transcript import SessionStore
journal = SessionStore(Path(sys.argv[1])).create(Path("/"), "m", "s", print)
session = Session("s", journal=journal)
for number in itertools.count():
    session.add(Message.user(f"{number} " + "x" * 20000))
    print(number, flush=True)
"""


@pytest.mark.parametrize("lines", [1, 7, 40])
def test_a_killed_process_loses_at_most_the_line_it_was_writing(tmp_path: Path, lines: int) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        output += process.stdout.readlines()
    written = [int(line) for line in output if line.endswith("\n")]
    store = SessionStore(tmp_path)
    (path,) = tmp_path.iterdir()
    session = reopen(store, path.stem)
    assert [int(m.content.split()[0]) for m in session.messages][: len(written)] == written
    assert len(session.messages) <= len(written) + 1
    session.add(Message.user("on"))
    journal(session).close()
    assert store.read(path.stem).messages[-1] == Message.user("on")


FULL = """
import resource, signal, sys
from pathlib import Path
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.transcript import SessionStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
journal = SessionStore(Path(sys.argv[1])).create(Path("/"), "m", "s", print)
session = Session("s", journal=journal)
for number in range(20):
    session.add(Message.user("x" * 500))
journal.close()
print(len(session.messages))
"""


def test_a_full_disk_ends_the_saving_and_not_the_conversation(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    output, count = done.stdout.splitlines()
    assert "the session is no longer saved: File too large" in output
    assert count == "20"
    (path,) = tmp_path.iterdir()
    saved = SessionStore(tmp_path).read(path.stem)
    assert 1 < len(saved.messages) < 10
    assert saved.complete
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

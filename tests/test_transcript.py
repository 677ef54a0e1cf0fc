"""Session files: what was written comes back, whatever happened to the process or the file."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.errors import SessionError
from shepherd.eviction import message_groups
from shepherd.messages import INTERRUPTED, Message, Role, ToolCall
from shepherd.session import Session
from shepherd.transcript import SessionStore, Transcript
from shepherd.transcript.store import new_id

CWD = Path("/somewhere")
TEXTS = st.text(max_size=20)
CALLS = st.builds(
    ToolCall,
    st.uuids().map(str),
    st.sampled_from(["read_file", "grep"]),
    st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | TEXTS, max_size=3),
)


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """A valid turn: user, any number of calls with their results, an answer."""
    messages = [Message.user(draw(TEXTS))]
    for _ in range(draw(st.integers(0, 2))):
        calls = draw(st.lists(CALLS, min_size=1, max_size=3, unique_by=lambda c: c.id))
        messages.append(Message.assistant(draw(TEXTS), draw(TEXTS), tuple(calls)))
        messages += [Message.tool(call, draw(TEXTS)) for call in calls]
    return [*messages, Message.assistant(draw(TEXTS))]


OPERATIONS = st.lists(turns() | st.sampled_from(["evict", "clear", "reopen"]), max_size=8)


def fail(text: str) -> None:
    raise AssertionError(text)


def begin(store: SessionStore, on_failure: Callable[[str], None] = fail) -> Session:
    transcript = store.create(CWD, "pup", "Be brief.", on_failure)
    return Session("Be brief.", id=transcript.header.id, journal=transcript)


def journal(session: Session) -> Transcript:
    assert isinstance(session.journal, Transcript)
    return session.journal


def reopen(store: SessionStore, id: str) -> Session:
    transcript, saved = store.reopen(id, fail)
    return Session(saved.system_message, list(saved.messages), id=saved.id, journal=transcript)


def filled(store: SessionStore, count: int = 4) -> tuple[Session, Path]:
    """A closed session with `count` turns of a call each, and its file."""
    session = begin(store)
    for number in range(count):
        call = ToolCall(f"call_{number}", "read_file", {"path": "ä\u2028.txt"})
        session.add(Message.user(f"question {number}"))
        session.add(Message.assistant("", "hm", (call,)))
        session.add(Message.tool(call, "content"))
        session.add(Message.assistant(f"answer {number}"))
    journal(session).close()
    return session, journal(session).path


def is_valid(messages: list[Message]) -> bool:
    """Whether each call has its result right behind it and each result its call."""
    waiting: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            return False
        waiting = [call.id for call in message.tool_calls]
    return not waiting


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(OPERATIONS)
def test_what_a_session_went_through_comes_back(
    tmp_path_factory: pytest.TempPathFactory, operations: list[list[Message] | str]
) -> None:
    store = SessionStore(tmp_path_factory.mktemp("sessions"))
    session = begin(store)
    session.add(Message.user("first"))
    for operation in operations:
        if operation == "evict":
            session.evict(message_groups(session.messages)[:2])
        elif operation == "clear":
            session.clear()
        elif operation == "reopen":
            journal(session).close()
            before = session.messages
            session = reopen(store, session.id)
            assert session.messages == before
        else:
            assert isinstance(operation, list)
            for message in operation:
                session.add(message)
    journal(session).close()
    saved = store.read(session.id)
    assert list(saved.messages) == session.messages
    assert (saved.system_message, saved.warnings) == ("Be brief.", ())


def test_a_file_cut_anywhere_loads_and_goes_on(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    whole, path = filled(store, count=2)
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
    session, path = filled(store)
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


def test_calls_without_results_are_answered(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session = begin(store)
    calls = tuple(ToolCall(f"c{n}", "grep", {}) for n in range(3))
    session.add(Message.user("x"))
    session.add(Message.assistant("", tool_calls=calls))
    session.add(Message.tool(calls[1], "found"))
    journal(session).close()
    for _ in range(2):
        resumed = reopen(store, session.id)
        assert [m.content for m in resumed.messages[2:]] == ["found", INTERRUPTED, INTERRUPTED]
        journal(resumed).close()


def test_settings_that_change_are_kept(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session = begin(store)
    journal(session).system_message_changed("before the first message")
    session.add(Message.user("x"))
    journal(session).model_changed("bigger")
    saved = store.read(session.id)
    assert (saved.system_message, saved.model) == ("before the first message", "bigger")
    journal(session).system_message_changed("later")
    assert store.read(session.id).system_message == "later"
    journal(session).close()


def test_an_empty_session_leaves_no_file(tmp_path: Path) -> None:
    session = begin(SessionStore(tmp_path / "sessions"))
    session.clear()
    journal(session).close()
    assert not (tmp_path / "sessions").exists()


def test_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        _, path = filled(SessionStore(tmp_path / "a" / "sessions"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_half_a_surrogate_pair_survives(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session = begin(store)
    session.add(Message.user("\ud800"))
    assert store.read(session.id).messages == (Message.user("\ud800"),)
    journal(session).close()


def test_a_session_is_open_once(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session, _ = filled(store)
    first = reopen(store, session.id)
    with pytest.raises(SessionError, match="open in another"):
        store.reopen(session.id, fail)
    with pytest.raises(SessionError, match="open in another"):
        store.delete(session.id)
    assert len(store.read(session.id).messages) == 16
    journal(first).close()
    journal(reopen(store, session.id)).close()
    store.delete(session.id)
    with pytest.raises(SessionError, match="No session"):
        store.find(session.id)


def test_sessions_are_found_by_directory_and_beginning(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    paths = [filled(store, count=1)[1] for _ in range(3)]
    for age, path in enumerate(paths):
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "broken.jsonl").write_text("nonsense\n")
    assert store.latest(CWD) == paths[0].stem
    assert store.find(paths[1].stem) == paths[1]
    with pytest.raises(SessionError, match="start of"):
        store.find(paths[0].stem[:2])
    with pytest.raises(SessionError, match="No saved session of /else"):
        store.latest(Path("/else"))
    summaries, problems = store.summaries()
    assert [s.id for s in summaries] == [p.stem for p in paths]
    assert (summaries[0].title, summaries[0].messages) == ("question 0", 4)
    assert len(problems) == 1


def test_a_session_in_which_nothing_was_said_is_passed_over(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    said = filled(store, count=1)[1]
    cleared = begin(store)
    cleared.add(Message.user("never mind"))
    cleared.clear()
    journal(cleared).close()
    os.utime(said, (1_000_000, 1_000_000))
    assert journal(cleared).path.exists()
    assert store.latest(CWD) == said.stem
    assert [s.id for s in store.summaries()[0]] == [said.stem]


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(3000, 1, 1)),  # noqa: DTZ001 - all are in UTC
    st.timedeltas(timedelta(milliseconds=1), timedelta(days=9)),
)
def test_ids_are_in_the_order_of_their_times(begun: datetime, later: timedelta) -> None:
    assert new_id(begun) < new_id(begun + later)


def test_of_files_written_at_once_the_one_begun_later_is_newer(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    paths = [filled(store, count=1)[1] for _ in range(5)]
    for path in paths:
        os.utime(path, (1_000_000, 1_000_000))
    newest_first = sorted((path.stem for path in paths), reverse=True)
    assert list(store.session_ids(CWD)) == newest_first
    assert [summary.id for summary in store.summaries()[0]] == newest_first


@pytest.mark.parametrize(
    "header", ["", "{}", "[]", "x", '{"type": "message"}', '{"type": "session", "version": 99}']
)
def test_a_file_without_a_header_is_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "x.jsonl").write_text(f"{header}\n")
    with pytest.raises(SessionError, match=r"x\.jsonl:1: not a session"):
        SessionStore(tmp_path).read("x")


def test_a_file_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    session, path = filled(SessionStore(tmp_path))
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

"""An answer is saved while it is written, so that a killed process leaves its text."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.messages import Message
from shepherd.transcript import SessionStore
from tests.patience import PATIENCE
from tests.transcripts import TEXTS, Home, begin, fail, is_valid, journal, reopen

PARTS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=PARTS, question=TEXTS)
def test_what_was_written_of_an_answer_is_the_last_message(
    tmp_path: Path, parts: list[tuple[str, str]], question: str
) -> None:
    store = SessionStore(tmp_path)
    session = begin(store)
    session.add(Message.user(question))
    answer = Message.assistant("", "")
    for content, reasoning in parts:
        answer = Message.assistant(answer.content + content, answer.reasoning + reasoning)
        journal(session).answer_grown(answer)
    saved = store.read(session.id)
    assert saved.is_unfinished == bool(answer.content or answer.reasoning)
    assert list(saved.messages) == [Message.user(question), *[answer] * saved.is_unfinished]
    journal(session).close()
    resumed = reopen(store, session.id)
    resumed.add(Message.user("go on"))
    resumed.branch_off(len(resumed.messages) - 1)
    journal(resumed).close()
    again = store.read(session.id)
    assert list(again.messages) == list(saved.messages)
    assert not again.is_unfinished


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.sampled_from(["grown", "failed", "answered", "compacted"]), max_size=8))
def test_only_the_last_answer_can_be_unfinished(tmp_path: Path, changes: list[str]) -> None:
    store = SessionStore(tmp_path)
    session = begin(store)
    session.add(Message.user("begin"))
    for number, change in enumerate(changes):
        answer = Message.assistant(f"{change} {number}")
        journal(session).answer_grown(Message.assistant(answer.content[:3]))
        journal(session).answer_grown(answer)
        if change == "answered":
            session.add(answer)
        elif change == "compacted":
            session.compact([range(len(session.messages))], Message.user("summary"))
        elif change == "failed":
            session.add(Message.user(f"again {number}"))
    journal(session).close()
    saved = store.read(session.id)
    kept = saved.messages[:-1] if saved.is_unfinished else saved.messages
    assert list(kept) == session.messages
    assert saved.is_unfinished == (changes[-1:] == ["grown"])


def test_a_file_with_growing_answers_that_is_cut_anywhere_loads_and_goes_on(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session = begin(store)
    for number in range(2):
        session.add(Message.user(f"question {number}"))
        for text in ("A", "An ans", "An answer"):
            journal(session).answer_grown(Message.assistant(text))
        session.add(Message.assistant(f"An answer {number}"))
    journal(session).close()
    path = tmp_path / f"{session.id}.jsonl"
    content = path.read_bytes()
    for length in range(content.index(b"\n") + 1, len(content)):
        path.write_bytes(content[:length])
        resumed = reopen(store, session.id)
        assert is_valid(resumed.messages)
        resumed.add(Message.user("more"))
        journal(resumed).close()
        again = store.read(session.id)
        assert list(again.messages) == resumed.messages
        assert again.warnings == ()


def test_a_resumed_session_says_that_its_answer_has_no_end(tmp_path: Path) -> None:
    home = Home(tmp_path)
    session = home.open()
    session.add(Message.user("a question"))
    assert "The last message has no answer." in home.notices_of(session)
    session = home.reopen(session)
    journal(session).answer_grown(Message.assistant("Half of"))
    assert "The last answer has no end" in home.notices_of(session)
    session = home.reopen(session)
    assert session.messages[-1] == Message.assistant("Half of")
    session.add(Message.assistant("done"))
    assert home.notices_of(session) == ""


STREAM = """
import asyncio, sys
from pathlib import Path
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.session import Session
from shepherd.transcript import SessionStore
from shepherd.turn import run_turn

def show(event):
    print(event, flush=True)
    return True

script = "text: one\\ndelay: 0.2\\ntext: two\\ndelay: 600"
journal = SessionStore(Path(sys.argv[1])).create(Path("/"), "m", "s", print)
asyncio.run(run_turn(Session("s", journal=journal), "hi", ScriptedBackend(parse_script(script)),
    None, show))
"""


def test_a_killed_stream_leaves_its_text_up_to_the_last_second(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STREAM, str(tmp_path)]
    store = SessionStore(tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        shown = iter(process.stdout.readline, "")
        assert any("two" in line for line in shown)
        (path,) = tmp_path.iterdir()
        end = time.monotonic() + PATIENCE
        while not store.read(path.stem).is_unfinished:
            assert time.monotonic() < end
        process.send_signal(signal.SIGKILL)
    _, saved = store.reopen(path.stem, fail)
    assert saved.messages[-1] == Message.assistant("onetwo")

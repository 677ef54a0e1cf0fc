"""The way back in a conversation from Python, and what the model learns of it."""

import warnings
from pathlib import Path

import pytest

import shepherd
from shepherd.undo.store import forget_session

WRITE = 'call: write_file {{"path": "a.txt", "content": "{}"}}\n---\ntext: Done.\n'
SCRIPT = "---\n".join(WRITE.format(text) for text in ("one", "two"))


def yes(_request: shepherd.ApprovalRequest) -> bool:
    return True


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    path = tmp_path / "script.txt"
    path.write_text(SCRIPT)
    return f"script:{path}"


def text() -> str:
    return Path("a.txt").read_text()


async def test_files_and_messages_go_back_from_python(model: str) -> None:
    async with shepherd.open(model=model, approve=yes, save=True) as chat:
        await chat.answer("write one")
        await chat.answer("write two")
        assert text() == "two"
        moved = await chat.undo()
        assert (moved.restored, text()) == (["a.txt"], "one")
        assert "+one" in await chat.diff()
        await chat.redo()
        prompt = await chat.rewind(2, files=True)
        assert (prompt.content, text()) == ("write two", "one")
        assert [m.content for m in chat.messages if m.role == "user"] == ["write one"]
        with pytest.raises(shepherd.SessionError, match="no message 2"):
            await chat.rewind(2)
        assert text() == "one"
        session = chat.id
    async with shepherd.open(model=model, approve=yes, session=session) as chat:
        await chat.undo(2)
        assert text() == "one", "two changes ago: the move, then the second write"
        await chat.answer("again")
        told = next(m.content for m in reversed(chat.messages) if m.role == "user")
        assert "The user undid `write_file a.txt`" in told
        assert told.startswith("again\n\n<note>")
        await chat.answer("and now")
        last = next(m.content for m in reversed(chat.messages) if m.role == "user")
        assert last == "and now", "it is told once"


async def test_without_a_saved_session_only_messages_go_back(model: str) -> None:
    async with shepherd.open(model=model, approve=yes) as chat:
        await chat.answer("write one")
        with pytest.raises(shepherd.UndoError, match="save_sessions"):
            await chat.undo()
        await chat.rewind(1)
        assert chat.messages == []
        assert text() == "one"


async def test_a_deleted_session_leaves_no_files(model: str, tmp_path: Path) -> None:
    (tmp_path / "work" / "a.txt").write_text("private words")
    async with shepherd.open(model=model, approve=yes, save=True) as chat:
        await chat.answer("write one")
        session = chat.id
    store = tmp_path / "home" / ".local" / "state" / "shepherd" / "undo.db"
    kept = [path for path in store.parent.glob("undo.db*") if b"private words" in path.read_bytes()]
    assert kept
    forget_session(store, session, warnings.warn)
    assert not [p for p in store.parent.glob("undo.db*") if b"private words" in p.read_bytes()]

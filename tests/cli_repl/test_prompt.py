import stat
from pathlib import Path

from prompt_toolkit.history import InMemoryHistory

from shepherd.cli.repl.prompt import MAX_HISTORY_BYTES, open_history


def _entries(path: Path) -> list[str]:
    return list(open_history(path).load_history_strings())


def test_the_history_is_private_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    open_history(path).store_string("a secret\nof two lines")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert _entries(path) == ["a secret\nof two lines"]


def test_a_long_history_loses_its_oldest_entries(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = open_history(path)
    texts = [f"message {n} " + "x" * 10_000 for n in range(150)]
    for text in texts:
        history.store_string(text)
    newest_first = _entries(path)
    assert path.stat().st_size < MAX_HISTORY_BYTES
    assert newest_first == texts[::-1][: len(newest_first)]
    assert len(newest_first) > 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_place_to_keep_it_the_history_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert isinstance(open_history(tmp_path / "file" / "history"), InMemoryHistory)

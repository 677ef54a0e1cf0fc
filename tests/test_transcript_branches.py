"""A branch of a session file that was cut comes back as far as it can."""

from pathlib import Path

from tests.transcripts import Home, branched


def test_a_branch_of_a_file_that_was_cut_anywhere_loads(tmp_path: Path) -> None:
    home = Home(tmp_path)
    session = branched(home)
    path = home.paths.sessions / f"{session.id}.jsonl"
    data = path.read_bytes()
    for length in range(data.index(b"\n") + 1, len(data)):
        path.write_bytes(data[:length])
        saved = home.store.read(session.id)
        contents = [message.content for message in saved.messages]
        assert contents in (
            ["one", "ONE", "two", "TWO"][: len(contents)],
            ["one", "ONE", "three"],
        )

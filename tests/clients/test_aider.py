"""aider: it calls no tools; an edit in the text of the answer changes the file."""

import shutil
from pathlib import Path

import pytest

from tests.clients.models import say
from tests.clients.page import run
from tests.clients.serving import serve

EDIT = """notes.txt
```
<<<<<<< SEARCH
Sheep like grass.
=======
Sheep like hay.
>>>>>>> REPLACE
```
"""


@pytest.mark.client("aider", "Chat")
@pytest.mark.skipif(shutil.which("aider") is None, reason="aider is not installed")
def test_an_edit_changes_the_file(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("Sheep like grass.\n")
    with serve(lambda _: say(EDIT), tmp_path / "server") as server:
        options = ["--yes", "--no-git", "--edit-format", "diff", "--message", "Hay!", notes.name]
        run("aider", server.url, tmp_path, options)
    assert notes.read_text() == "Sheep like hay.\n"

"""The programs of docs/python.md run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.pictures import png

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
EXPECTED = {
    "shepherd.ask(": ("", "Pup"),
    "case shepherd.Text(text)": ("", "notes.txt"),
    "def order(": (
        'call: order {"dish": "soup", "portions": 2}\n---\ntext: On its way.\n',
        "On its way.",
    ),
    "def count_lines(": ('call: count_lines {"path": "notes.txt"}\n---\ntext: Three.\n', "Three."),
    "session=session": ("", "2 messages are back\n4 messages now"),
    "images=[": ("text: A photo\ndelay: 0.01\ntext: of a cat\n", "cancelled"),
}
"""What marks a program, the script of the provider `work`, and a part of the output."""


def test_each_program_of_the_page_is_known_here() -> None:
    assert [mark for mark in EXPECTED if sum(mark in text for text in PROGRAMS) != 1] == []
    assert len(PROGRAMS) == len(EXPECTED)


@pytest.mark.parametrize("mark", EXPECTED)
def test_a_program_of_the_page_runs(mark: str, tmp_path: Path) -> None:
    (program,) = (text for text in PROGRAMS if mark in text)
    script, expected = EXPECTED[mark]
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "photo.png").write_bytes(png(2, 2))
    (tmp_path / "script").write_text(script)
    settings = tmp_path / "home" / ".config" / "shepherd"
    settings.mkdir(parents=True)
    work = f'[work]\ntype = "llamacpp"\nmodel = "script:{tmp_path / "script"}"\n'
    (settings / "providers.toml").write_text(work)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", program],
        cwd=tmp_path,
        env={"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert expected in done.stdout

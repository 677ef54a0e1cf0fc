"""The pictures in the docs show what the program of today does."""

import re
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts import record_work
from scripts.record_session import DOCS, draw, play, play_review
from tests.tools.sandbox.boxes import LAYERED, need

TEXT = re.compile(r'<text class="[^"]*" x="([^"]*)" y="([^"]*)"[^>]*>(.*?)</text>')
COLUMN = 12.2
"""The width of a character in a picture."""
OF_ONE_RUN = {
    r"/\S*/garden\b": "/garden",
    r"--resume \S+": "--resume SESSION",
    r"read \d+ tokens before": "read TOKENS before",
    r"Ran 1 test in \S+": "Ran 1 test",
    r"\d+/32\.8k tokens \(\d%\)( · \d+ tok/s)?": "TOKENS",
    r"\d+/8\.2k tokens \(\d%\)( · \d+ tok/s)?": "NUMBERS",
}
"""What differs between recordings: places, ids, and speeds. A slow answer shows no speed."""


def lines(svg: str) -> list[str]:
    """The text of a picture, line by line."""
    rows: dict[float, dict[float, str]] = {}
    for x, y, text in TEXT.findall(svg):
        rows.setdefault(float(y), {})[float(x)] = unescape(text).replace("\xa0", " ")
    whole = "\n".join(_line(rows[y]) for y in sorted(rows))
    for pattern, name in OF_ONE_RUN.items():
        whole = re.sub(pattern, name, whole)
    return whole.splitlines()


def _line(texts: dict[float, str]) -> str:
    line = ""
    for x in sorted(texts):
        line = line.ljust(round(x / COLUMN)) + texts[x]
    return line.rstrip()


def test_the_recorded_session_is_what_happens() -> None:
    with TemporaryDirectory() as home:  # whose name is short enough for a line
        pictures = play(Path(home))
    for name, picture in pictures.items():
        recorded = (DOCS / name).read_text(encoding="utf-8")
        assert "NUMBERS" in lines(recorded)[-1]
        assert lines(draw(picture)) == lines(recorded), (
            f"docs/{name} is out of date: python -m scripts.record_session draws it anew"
        )


def test_the_recorded_review_is_what_happens() -> None:
    need(LAYERED[0])
    with TemporaryDirectory() as home:
        picture = play_review(Path(home))
    recorded = (DOCS / "review.svg").read_text(encoding="utf-8")
    assert any("Keep which of these changes?" in line for line in lines(recorded))
    assert lines(draw(picture)) == lines(recorded), (
        "docs/review.svg is out of date: python -m scripts.record_session draws it anew"
    )


def test_the_recorded_work_is_what_happens() -> None:
    with TemporaryDirectory() as home:
        picture = record_work.play(Path(home))
    recorded = (DOCS / record_work.PICTURE).read_text(encoding="utf-8")
    assert any("AGENTS.md" in line for line in lines(recorded))
    assert lines(draw(picture)) == lines(recorded), (
        f"docs/{record_work.PICTURE} is out of date: python -m scripts.record_work draws it anew"
    )

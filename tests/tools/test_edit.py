"""edit_file: what changes changes, and nothing else does."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shepherd.tools.files.edit import replace_text
from tests.tools.workshop import Workshop


async def test_one_place(workshop: Workshop) -> None:
    file = workshop.root / "a.py"
    file.write_text("x = 1\ny = 2\n")
    result = await workshop.result("edit_file", path="a.py", old_string="= 1", new_string="= 10")
    assert result.content == "Edited a.py: 1 replacement"
    assert result.display == "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 10\n y = 2"
    assert file.read_text() == "x = 10\ny = 2\n"


async def test_several_places(workshop: Workshop) -> None:
    file = workshop.root / "a.py"
    file.write_text("a b a\n")
    edit = {"path": "a.py", "old_string": "a", "new_string": "c"}
    assert await workshop.call("edit_file", **edit) == (
        "Error: old_string occurs 2 times in a.py; give more context or set replace_all"
    )
    assert file.read_text() == "a b a\n"
    assert (
        await workshop.call("edit_file", **edit, replace_all=True) == "Edited a.py: 2 replacements"
    )
    assert file.read_text() == "c b c\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("zzz", "y", "Error: old_string not found in a.py"),
        ("", "y", "Error: old_string is empty; use write_file to create a file"),
        ("x", "x", "Error: old_string and new_string are the same"),
        ("   ", "y", "Error: old_string not found in a.py"),
    ],
)
async def test_errors(workshop: Workshop, old: str, new: str, expected: str) -> None:
    (workshop.root / "a.py").write_text("x = 1\n")
    assert await workshop.call("edit_file", path="a.py", old_string=old, new_string=new) == expected


async def test_a_missing_file(workshop: Workshop) -> None:
    text = await workshop.call("edit_file", path="gone", old_string="a", new_string="b")
    assert text == "Error: no such file: gone"


async def test_whitespace_is_forgiven_and_told(workshop: Workshop) -> None:
    file = workshop.root / "a.py"
    file.write_text("class A:\n    def f(self):\n        return  1\n\n    x = 2\n")
    text = await workshop.call(
        "edit_file",
        path="a.py",
        old_string="def f(self):\n    return 1\n",
        new_string="def g(self):\n    return 3\n",
    )
    assert text == "Edited a.py: 1 replacement (matched ignoring whitespace)"
    assert file.read_text() == "class A:\n    def g(self):\n        return 3\n\n    x = 2\n"


@pytest.mark.parametrize(
    ("data", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "a", "1\n2", b"1\r\n2\r\nb\r\n"),
        (b"\xef\xbb\xbfa = 1\n", "a = 1", "a = 2", b"\xef\xbb\xbfa = 2\n"),
        ("schön\n".encode("latin-1"), "schön", "grün", "grün\n".encode("latin-1")),
        ("größe".encode("utf-16-le"), "x", "y", None),
        (b"ok \xff\xc3\xa9\n", "ok", "no", b"no \xff\xc3\xa9\n"),
        (b"mixed\r\none\ntwo\n", "one\ntwo", "1\n2", b"mixed\r\n1\n2\n"),
    ],
)
async def test_line_ends_and_encoding_stay(
    workshop: Workshop, data: bytes, old: str, new: str, after: bytes | None
) -> None:
    file = workshop.root / "a"
    file.write_bytes(data)
    text = await workshop.call("edit_file", path="a", old_string=old, new_string=new)
    assert file.read_bytes() == (data if after is None else after)
    assert text.startswith("Error" if after is None else "Edited")


async def test_a_character_that_the_encoding_lacks(workshop: Workshop) -> None:
    (workshop.root / "a").write_bytes("é\n".encode("latin-1"))
    text = await workshop.call("edit_file", path="a", old_string="é", new_string="→")
    assert text == "Error: a is latin-1, which has no '→'"


async def test_the_request_shows_the_diff_and_a_failing_edit_asks_nobody(tmp_path: Path) -> None:
    from shepherd.config.section import ApproveMode
    from shepherd.tools.permissions.approval import Choice
    from tests.tools.workshop import open_workshop

    workshop = open_workshop(tmp_path, mode=ApproveMode.ASK, answers=[Choice.ONCE])
    (workshop.root / "a").write_text("one\n")
    text = await workshop.call("edit_file", path="a", old_string="two", new_string="x")
    assert text == "Error: old_string not found in a"
    assert workshop.request_count == 0
    await workshop.call("edit_file", path="a", old_string="one", new_string="two")
    assert workshop.approver.requests[0].preview.endswith("-one\n+two")


words = st.text("ab \n\t", max_size=12)


@given(words, words, words, words)
def test_a_unique_match_changes_only_itself(head: str, old: str, tail: str, new: str) -> None:
    text = head + old + tail
    assume(old and text.find(old) == text.rfind(old))
    done = replace_text(text, old, new, "\n", every=False)
    assert (done.text, done.count, done.tolerant) == (head + new + tail, 1, False)


@given(st.lists(words, min_size=2, max_size=4), words.filter(bool), words)
def test_every_match_is_replaced(parts: list[str], old: str, new: str) -> None:
    text = old.join(parts)
    done = replace_text(text, old, new, "\n", every=True)
    assert done.text == text.replace(old, new)
    assert done.count == text.count(old)


spaces = st.sampled_from([" ", "  ", "\t", " \t "])


@given(st.lists(spaces, min_size=4, max_size=4), st.sampled_from(["new", "two words", "a\n  b"]))
def test_a_tolerant_match_differs_in_whitespace_only(gaps: list[str], new: str) -> None:
    old = f"if{gaps[0]}x:\n{gaps[1]}y"
    text = f"head\n\tif{gaps[2]}x:\n\t{gaps[3]}y\ntail\n"
    assume(old not in text)
    done = replace_text(text, old, new, "\n", every=False)
    assert (done.count, done.tolerant) == (1, True)
    assert done.text.split() == ["head", *new.split(), "tail"]
    assert done.text.startswith("head\n\t")
    assert done.text.endswith("\ntail\n")

"""Diffs tell the whole change, whatever its size."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from shepherd.tools.files.linediff import common_blocks, unified_diff

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
NO_NEWLINE = "\\ No newline at end of file"
TEXTS = st.one_of(
    st.lists(st.sampled_from("abc"), max_size=30).map("\n".join),
    st.text("ab\n\r\x0b\x0c\x1c\x85\u2028", max_size=40),
    st.lists(st.sampled_from(["a", "b", "longer line", "-- x", "++ y"]), max_size=40).map(
        lambda lines: "".join(f"{line}\n" for line in lines)
    ),
)


def applied(diff: str, before: str) -> str:
    """What the diff makes of `before`, read as `patch` reads it."""
    old = re.findall(r"[^\n]*\n|[^\n]+", before)
    made: list[str] = []
    at, last = 0, ""
    for line in diff.split("\n")[2:]:
        header = HUNK.fullmatch(line)
        if header:
            start = int(header[1]) - (header[2] != "0")
            made += old[at:start]
            at = start
        elif line == NO_NEWLINE:
            made[-1:] = [made[-1].removesuffix("\n")] if last != "-" else made[-1:]
        else:
            last, text = line[0], line[1:] + "\n"
            if last != "+":
                assert old[at].removesuffix("\n") + "\n" == text
                at += 1
            if last != "-":
                made.append(text)
    return "".join([*made, *old[at:]])


@given(TEXTS, TEXTS)
@example("", "a")
@example("a", "a\n")
@example("a\nb\nc", "a\nb\nc\n")
@example("x\x0crm -rf /\n", "x\n")
def test_a_diff_rebuilds_the_new_text(before: str, after: str) -> None:
    diff = unified_diff(before, after, "f")
    if before == after:
        assert diff == ""
    elif "@@ only line ends change" in diff:
        assert before.replace("\r\n", "\n") == after.replace("\r\n", "\n")
    elif "\r\n" in before and "\r\n" in after:
        unix = [text.replace("\r\n", "\n") for text in (before, after)]
        assert applied(diff, before) == after or applied(diff, unix[0]) == unix[1]
    else:
        assert applied(diff, before) == after


@given(*[st.lists(st.sampled_from("abcdefgh"), max_size=60)] * 2)
def test_common_lines_are_common_and_in_order(old: list[str], new: list[str]) -> None:
    i = j = 0
    for x, y, length in common_blocks(old, new):
        assert x >= i
        assert y >= j
        assert old[x : x + length] == new[y : y + length] != []
        i, j = x + length, y + length


def test_a_change_of_thousands_of_lines_is_shown_in_full() -> None:
    before = "".join(f"line {n}\n" for n in range(6000))
    after = "".join(f"line {n}\n" if n % 3 else f"new {n}\n" for n in range(6000))
    diff = unified_diff(before, after, "f")
    assert applied(diff, before) == after
    assert diff.count("\n+new ") == diff.count("\n-line ") == 2000
    rewritten = "".join(f"other {n}\n" for n in range(3000))
    lines = unified_diff(before, rewritten, "f").split("\n")
    assert len(lines) == 2 + 1 + 6000 + 3000


def test_texts_that_repeat_few_lines_are_compared_too() -> None:
    before, after = "ab" * 20_000, "aab" * 10_000
    diff = unified_diff("\n".join(before), "\n".join(after), "f")
    assert applied(diff, "\n".join(before)) == "\n".join(after)


def test_a_new_file_is_all_there() -> None:
    diff = unified_diff("", "".join(f"{n}\n" for n in range(600)), "f")
    assert diff.split("\n")[2:] == ["@@ -0,0 +1,600 @@", *(f"+{n}" for n in range(600))]


def test_characters_that_are_no_line_ends_stay_in_their_line() -> None:
    diff = unified_diff("", "# a\u2028rm -rf /\x0b\x85\n", "f")
    assert diff.split("\n")[3:] == ["+# a\u2028rm -rf /\x0b\x85"]


def test_line_ends_that_change() -> None:
    diff = unified_diff("a\r\nb\r\n", "a\nb\n", "f")
    assert diff.endswith("@@ only line ends change, 2 lines @@")
    assert unified_diff("a\r\nb\r\n", "a\r\nc\r\n", "f").endswith(" a\n-b\n+c")
    assert "+c\r" in unified_diff("a\nb\n", "a\nc\r\n", "f")


def test_a_files_name_does_not_add_lines_to_a_diff() -> None:
    diff = unified_diff("a\n", "b\n", "x\n+allowed")
    assert diff.splitlines() == [r"--- x\n+allowed", r"+++ x\n+allowed", "@@ -1 +1 @@", "-a", "+b"]

"""Scripts of sed and awk: what is taken for harmless is so by sed's own word."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.tools.shell.programs.scripts import only_edits, only_prints
from tests.examples import examples

_PIECES = [
    *"eswrRWFpdaicynNqb:;{}!$,/|\\\n []^x1~+#g",
    "s/x/y/",
    "/x/",
    "[[:alpha:]",
    "1,3",
    "a\\\n",
]
_SCRIPTS = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=14).map("".join)


def _has_sandbox() -> bool:
    sed = shutil.which("sed")
    if sed is None:
        return False
    line = [sed, "--sandbox", "w x"]
    result = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return b"sandbox mode" in result.stderr


@pytest.mark.skipif(not _has_sandbox(), reason="only GNU sed tells what opens files")
@settings(max_examples=examples(300), deadline=None)
@given(_SCRIPTS)
def test_sed_itself_finds_nothing_that_opens_a_file(script: str) -> None:
    if not only_edits(script):
        return
    line = ["sed", "--sandbox", "-n", "-e", script]
    result = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert b"sandbox mode" not in result.stderr


@pytest.mark.parametrize(
    "script", ["s/a/b/", "$!N;P;D", "s|a/b|c|gI", "1~2d", "/x/I,+3d", "1i\\\nx"]
)
def test_a_script_that_only_edits_is_known(script: str) -> None:
    assert only_edits(script)


@pytest.mark.parametrize(
    ("program", "harmless"),
    [
        ("$3 > 100 {print $1}", True),
        ("{print ($1 > 5), (a + b) / 2}", True),
        ("{for (k in a) print k / 2}", True),
        ('{print a, (b) > "f"}', False),
        ('{print a,\nb > "f"}', False),
        ('{if (1) /"/; system("x"); "/}', False),
        ('{exit /"/; system("x"); "/"}', False),
        ('{f = "system"; @f("x")}', False),
    ],
)
def test_a_program_of_awk_is_read_to_its_end(program: str, harmless: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert only_prints(program) is harmless

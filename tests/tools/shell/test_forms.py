"""Known reading forms, run for real: they tell nothing but their operands, and change nothing."""

import os
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from shepherd.tools.access import AccessKind, Claim
from shepherd.tools.shell.accesses import line_accesses
from tests.examples import examples

CANARY = "CANARY-7f1e"
PROGRAM_NAMES = """
cat head tail wc sort uniq cut diff du file tree date find ls stat cmp comm nl paste tac rev test
grep egrep git readlink df
"""
PROGRAMS = PROGRAM_NAMES.split()
OPTIONS = [f"-{letter}" for letter in "aAbBcCdDeEfFgGhHiIjkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ0123"]
LONG_OPTIONS = """
--recursive --files0-from=.env --files0-from .env --file=.env --file --output=out --output out
--from-file=. --to-file=. --reference=.env --exclude-from=.env --check --filter=cat --include=*
--regexp=. --regexp --color --directories=recurse --textconv --ext-diff --no-index --contents=.env
--batch --stat --patch --all --follow --stdin --pathspec-from-file=.env --orderfile=.env -S.env
-O.env -f.env -X.env -T. -o out -oout --temporary-directory=. --compress-program=cat --ignore=x
--magic-file=.env --files-from=.env --fromfile .env --date --set=now --debug --expression -exec
-delete -fprint -fls -newer -samefile -files0-from -printf %p -name -print0 --help --version
-L1,1:.env -S -L -C2 --word-diff=plain --ignore-revs-file=.env --log-size --unified=1 --
"""
LONG = LONG_OPTIONS.split()
OPERANDS = [".", "sub", "a.txt", "sub/b.txt", "x", "HEAD", "status", "log", "diff", "show", "blame",
            "ls-files", "cat-file", "-", "+%F", "1", "list"]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    (place / "sub").mkdir(parents=True)
    for name in ("a.txt", "sub/b.txt"):
        (place / name).write_text("x\n")
    for name in (".env", "sub/.env", "sub/other"):
        (place / name).write_text(f"{CANARY}\n")
    (place / "list").write_text(".env\0")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "a.txt"], ["commit", "-qm", "a"]):
        subprocess.run([*git, *words], cwd=place, check=True, capture_output=True)
    return place


def test_a_reading_form_tells_only_what_it_names(place: Path) -> None:
    random = Random(7)
    before, tried = state(place), 0
    for _ in range(examples(6000)):
        program = random.choice(PROGRAMS)
        words = [random.choice(random.choice((OPTIONS, LONG, OPERANDS, OPERANDS)))
                 for _ in range(random.randrange(1, 5))]  # fmt: skip
        line = " ".join([program, *(word if word != "*" else "'*'" for word in words)])
        accesses = line_accesses(line, place)
        command = accesses[0]
        read = {a.target for a in accesses if a.kind is AccessKind.READ}
        secrets = {str(place / name) for name in (".env", "sub/.env", "sub/other")}
        if not command.wildcards or command.claim is not Claim.EXACT or secrets & read:
            continue
        tried += 1
        assert CANARY not in output([program, *words], place), line
        assert state(place) == before, line
    assert tried > 100


def output(words: list[str], place: Path) -> str:
    """What a program writes within a second; "" if it is not there."""
    if shutil.which(words[0]) is None:
        return ""
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "GIT_OPTIONAL_LOCKS": "0"}
    try:
        ended = subprocess.run(words, cwd=place, env=environment, stdin=subprocess.DEVNULL,
                               capture_output=True, timeout=1, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    return (ended.stdout + ended.stderr).decode(errors="replace")


def state(place: Path) -> dict[str, float]:
    """Every file and when it was changed."""
    return {str(path): path.lstat().st_mtime_ns for path in place.rglob("*")}

"""A full disk and a home that can't be written: said once, and the work goes on."""

from pathlib import Path

import pytest

from tests.examples import some
from tests.faults.disks import Disk, need_namespaces
from tests.faults.homes import check_home

FILL = 'head -c 100000000 /dev/zero >"$HOME/filler"'
LONG = '{"type": "user", "content": "' + "one two three four " * 22 + '"}\n'
PLACES = ["full", "read-only"]
SIZES = [20_480, 40_960, 81_920, 163_840]


@pytest.fixture(params=PLACES)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    need_namespaces()
    return make_disk(tmp_path, request.param)


def make_disk(place: Path, kind: str, size: int = 1 << 20) -> Disk:
    for name in ("home", "work", "kept"):
        (place / name).mkdir()
    (place / "work" / "todo.txt").write_text("buy milk\n")
    fill = FILL if kind == "full" else ""
    home, work, kept = place / "home", place / "work", place / "kept"
    return Disk(home, work, kept, size, fill, read_only=kind == "read-only")


def test_an_answer_comes_all_the_same(disk: Disk) -> None:
    done = disk.run("-e", "read todo.txt", "--approve", "all")
    assert done.returncode == 0, done.stderr
    assert "buy milk" in done.stdout
    assert done.stderr.count("no longer saved") == 1
    assert "Traceback" not in done.stderr
    check_home(disk.kept)


def test_a_long_conversation_goes_on_without_its_memory(disk: Disk) -> None:
    small = ["--set", "llamacpp.context_size=768"]
    done = disk.run("--json", *small, stdin=LONG * 6)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"end_turn"') == 6
    assert '"reason": "error"' not in done.stdout
    assert "not kept" in done.stdout
    assert "Traceback" not in done.stderr
    check_home(disk.kept)


@pytest.mark.parametrize(
    "arguments",
    [
        ("apikey", "add", "mine"),
        ("config", "set", "tools.timeout", "5"),
        ("provider", "add", "mine", "--type", "openai", "--base-url", "http://127.0.0.1:1/v1"),
    ],
)
def test_what_must_be_written_fails_in_a_sentence(disk: Disk, arguments: tuple[str, ...]) -> None:
    done = disk.run(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("shepherd: ")
    assert len(done.stderr.splitlines()) == 1
    assert "No space left" in done.stderr or "Read-only" in done.stderr
    assert "Errno" not in done.stderr
    assert "sk-shep-" not in done.stdout
    check_home(disk.kept)


@pytest.mark.long
@pytest.mark.parametrize("size", some(SIZES, "sizes of disks", 2))
def test_a_disk_that_fills_up_in_the_middle(tmp_path: Path, size: int) -> None:
    """What was saved before stays readable, and nothing half written is taken for whole."""
    need_namespaces()
    disk = make_disk(tmp_path, "small", size)
    done = disk.run("--json", "--set", "llamacpp.context_size=768", stdin=LONG * 8)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"end_turn"') == 8
    assert '"reason": "error"' not in done.stdout
    assert "Traceback" not in done.stderr
    check_home(disk.kept)

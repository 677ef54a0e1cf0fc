"""What holds and what works in every box."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.errors import ToolError
from shepherd.tools.sandbox.boxes.box import Box, report_leftovers
from shepherd.tools.sandbox.boxes.landlock import Landlock
from shepherd.tools.sandbox.refusal import Refusal
from shepherd.tools.sandbox.sandbox import find_box
from shepherd.tools.sandbox.view.private import PrivateFiles, private_files, remove_tree
from tests.tools.sandbox.boxes import BOXES, make_profile, run_in
from tests.tools.users import as_ordinary_user


@pytest.fixture(params=BOXES, ids=lambda box: box.name)
def box(request: pytest.FixtureRequest) -> Box:
    """Each box that works here."""
    return request.param


def test_the_working_directory_can_be_written(box: Box, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)

    ended = run_in(box, profile, "cd src && echo text > new && mkdir d && mv new d/ && cat d/new")

    assert (ended.code, ended.out, ended.err) == (0, "text\n", "")
    assert (profile.root / "src" / "d" / "new").read_text("utf-8") == "text\n"


def test_what_is_outside_can_not_be_written(box: Box, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    (tmp_path / "outside").write_text("kept", "utf-8")

    run_in(box, profile, f"echo changed > {tmp_path}/outside; echo new > {tmp_path}/made")

    assert (tmp_path / "outside").read_text("utf-8") == "kept"
    assert not (tmp_path / "made").exists()


def test_hidden_files_are_not_read_and_protected_ones_are(box: Box, tmp_path: Path) -> None:
    ended = run_in(box, make_profile(tmp_path), "cat .env; cat .git/config; echo x > .git/config")

    assert "canary" not in ended.out
    assert "[core]" in ended.out
    assert (tmp_path / "project" / ".git" / "config").read_text("utf-8") == "[core]\n"


def test_some_box_works_here() -> None:
    finding = find_box()

    assert finding.box is not None, finding.tried


@pytest.mark.parametrize("above", ["", "user"])
def test_start_up_files_are_kept_where_the_working_directory_holds_the_home(
    box: Box, above: str, tmp_path: Path
) -> None:
    profile = make_profile(tmp_path)
    home = profile.root / above
    profile = replace(profile, home=home, cwd=home)
    (home / ".local" / "bin").mkdir(parents=True)
    (home / "src").mkdir(exist_ok=True)
    (home / ".bashrc").write_text("kept", "utf-8")

    ended = run_in(
        box,
        profile,
        "echo x >> .bashrc; echo x > .zshrc; echo x > .local/bin/x; mv .local/bin .local/b; "
        f"echo x > src/made; cat {profile.root}/.env",
    )

    assert (home / ".bashrc").read_text("utf-8") == "kept"
    assert not (home / ".zshrc").exists()
    assert list((home / ".local").rglob("*")) == [home / ".local" / "bin"]
    assert (home / "src" / "made").exists()
    assert "canary" not in ended.out
    assert box.name == "landlock-bare" or any(".zshrc" in r.text for r in ended.reports)


@pytest.mark.parametrize("place", ["/dev", "/proc", "/"])
def test_no_readable_place_covers_devices_and_processes(place: str, tmp_path: Path) -> None:
    profile = replace(make_profile(tmp_path), readable=(Path(place),))
    names = f"/dev/mem /dev/kmsg /dev/block /proc/{os.getpid()}/comm"

    ended = run_in(Landlock(), profile, f"echo ran; ls {names}; echo a > /proc/sys/kernel/hostname")

    assert ended.out == "ran\n"
    assert ended.err.count("No such file") == 4
    assert "Read-only file system" in ended.err or "Permission denied" in ended.err


def test_deep_directories_of_a_command_are_removed(box: Box, tmp_path: Path) -> None:
    deep = "import os\nos.chdir(os.environ['TMPDIR'])\n"
    deep += "for _ in range(1200): os.mkdir('d'); os.chdir('d')"

    python = os.path.realpath(sys.executable)
    ended = run_in(box, make_profile(tmp_path), [python, "-I", "-S", "-c", deep])

    assert ended.code == 0, ended
    with private_files() as files:
        assert not any(files.temp.iterdir())


@pytest.mark.parametrize("place", ["/", "/usr", "/proc/self", "/dev/shm"])
def test_some_places_can_not_be_a_working_directory(box: Box, place: str, tmp_path: Path) -> None:
    profile = replace(make_profile(tmp_path), root=Path(place), cwd=Path(place))

    with pytest.raises(ToolError, match="working directory"):
        run_in(box, profile, "true")


def test_another_repository_is_not_shown_by_a_forged_pointer(box: Box, tmp_path: Path) -> None:
    profile = replace(make_profile(tmp_path), protected=())
    root = profile.root
    shutil.rmtree(root / ".git")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("secret-canary", "utf-8")
    (root / "forged").mkdir()
    (root / ".git").write_text(f"gitdir: {root}/forged\n", "utf-8")
    (root / "forged" / "gitdir").write_text(f"{root}/.git\n", "utf-8")
    (root / "forged" / "commondir").write_text(f"{tmp_path}/other\n", "utf-8")

    ended = run_in(box, profile, f"cat {tmp_path}/other/file")

    assert "secret-canary" not in ended.out


@pytest.mark.parametrize("place", ["$TMPDIR", "$HOME"])
def test_what_is_lost_with_the_command_is_told(box: Box, place: str, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    line = f"mkdir {place}/out; echo text > {place}/out/report; : > {place}/empty; ls {place}"

    line = f"{line}; mkdir {place}/.cache; echo x > {place}/.cache/x"
    ended = run_in(box, profile, line, {**os.environ, "HOME": str(profile.home)})

    assert (ended.code, ended.err) == (0, "")
    directory = "/tmp" if place == "$TMPDIR" else str(profile.home)
    why = "/tmp and the home directory are the command's own and end with it"
    assert [report.text for report in ended.reports] == [f"not kept: {directory}/out/report: {why}"]


def test_a_command_may_close_a_directory_that_is_lost() -> None:
    base = Path(tempfile.mkdtemp(prefix="shepherd-test-"))
    as_ordinary_user(base, lambda: report_closed(PrivateFiles(base / "private")))
    remove_tree(base)


def report_closed(private: PrivateFiles) -> None:
    """Report what is lost where a directory has been closed."""
    closed, reports = private.temp / "closed", list[Refusal]()
    closed.mkdir(parents=True)
    (closed / "file").write_text("text", "utf-8")
    closed.chmod(0o444)
    report_leftovers(private, private.home, reports.append)
    assert reports == []


def test_nothing_is_told_of_what_was_removed_or_is_kept(box: Box, tmp_path: Path) -> None:
    line = "echo x > $TMPDIR/a; rm $TMPDIR/a; echo x > kept; mktemp > $TMPDIR/tmpabcdef12"
    assert run_in(box, make_profile(tmp_path), line).reports == ()


def test_names_of_lost_files_can_not_write_on_the_screen(box: Box, tmp_path: Path) -> None:
    ended = run_in(
        box, make_profile(tmp_path), r"""echo text > "$TMPDIR/$(printf '\33[31ma\nb')" """
    )

    (report,) = ended.reports
    assert r"/tmp/\x1b[31ma\nb: " in report.text
    assert "\x1b" not in report.text

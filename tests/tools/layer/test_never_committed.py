"""What a layer never gives to the real files, and what it must not lose of them."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.tools.files.opening import closing_descriptor, open_directory
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import leads_out, read_effect
from shepherd.tools.layer.layer import Layer
from tests.tools.layer.running import BOX, run_layered
from tests.tools.sandbox.boxes import need
from tests.undo.project import view

MakeLayer = Callable[[Path], Layer]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "file").write_text("1\n")
    (tmp_path / "outside").mkdir()
    return root


def committed(root: Path, layer: Layer, line: str) -> list[str]:
    """Commit what a line does; returns the paths that are named as left out."""
    need(BOX)
    run_layered(BOX, root, layer, line)
    effect = read_effect(layer)
    commit(layer, effect.changes)
    return [path for path, _why in effect.left_out]


@pytest.mark.parametrize("target", ["file", "./file", "sub/deep", "nowhere", "{root}/file", "sub/"])
def test_a_link_that_stays_inside_is_committed(
    root: Path, make_layer: MakeLayer, target: str
) -> None:
    target = target.format(root=root)

    assert committed(root, make_layer(root), f"ln -s {target} link") == []

    assert (root / "link").readlink() == Path(target)


LEADING_OUT = (
    *("..", "../outside", "sub/../../outside", "{root}/../outside", "{base}/outside", "/"),
    *("{home}/.ssh/authorized_keys", "/etc/passwd", "/tmp/x", "/proc/self/root", "sub/../file"),
    *("/usr/../{home}/.ssh", "/usr/bin/../../etc/passwd"),
)


@pytest.mark.parametrize("target", LEADING_OUT)
def test_a_link_that_leads_out_is_not(root: Path, make_layer: MakeLayer, target: str) -> None:
    target = target.format(root=root, base=root.parent, home=Path.home())
    before = view(root)

    line = f"ln -s '{target}' link; rm file; ln -s '{target}' file; echo 1 > made"
    named = committed(root, make_layer(root), line)

    after = view(root)
    assert after.pop("made")[1] == b"1\n"
    assert named == ["file", "link"]
    assert after == before


def test_a_chain_of_links_does_not_lead_out(root: Path, make_layer: MakeLayer) -> None:
    # each target looks as if it stayed inside
    line = "ln -s .. sub/up; ln -s up/../outside sub/out; ln -s sub/up/../outside over"
    named = committed(root, make_layer(root), line)

    assert named == ["over", "sub/out"]


def test_a_link_that_was_there_before_stays(root: Path, make_layer: MakeLayer) -> None:
    (root / "data").symlink_to(root.parent / "outside")
    (root / "sub" / "up").symlink_to("../../outside")

    named = committed(root, make_layer(root), "mv data moved; cp -a sub other; touch -h sub/up")

    assert named == ["moved", "other/up"]
    assert (root / "sub" / "up").is_symlink()


@pytest.mark.parametrize("flags", ["", "--copies"])
def test_a_virtual_environment_works_afterwards(
    root: Path, make_layer: MakeLayer, flags: str
) -> None:
    python = f"{sys.base_prefix}/bin/python3"

    line = f"{python} -m venv --without-pip {flags} .venv && .venv/bin/python -c 'print(1)'"
    named = committed(root, make_layer(root), line)

    assert named == []
    inside = root / ".venv" / "bin" / "python"
    printed = subprocess.check_output([inside, "-c", "import sys; print(sys.prefix)"], text=True)
    assert printed.strip() == str(root / ".venv")


def test_a_directory_of_another_group_takes_what_is_made_in_it(
    root: Path, make_layer: MakeLayer
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root has other groups")
    os.chown(root, -1, 1)
    root.chmod(0o2775)

    layer = make_layer(root)

    assert (layer.upper.stat().st_gid, layer.upper.stat().st_mode) == (1, root.stat().st_mode)


@pytest.mark.parametrize(
    "target", ["/usr/bin/env", "/nix/store/x", "{home}/.nvm/versions/node/v1/bin/node"]
)
def test_links_to_programs_are_committed(root: Path, tmp_path: Path, target: str) -> None:
    (Path.home() / ".nvm").mkdir(exist_ok=True)

    assert not leads_out(root, Path("bin/x"), target.format(home=Path.home()))


def test_a_link_to_the_settings_of_a_tool_is_not(root: Path) -> None:
    (Path.home() / ".gitconfig").touch()

    assert leads_out(root, Path("x"), f"{Path.home()}/.gitconfig")


def test_devices_pipes_and_sockets_are_not_kept(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    with (
        socket.socket(socket.AF_UNIX) as bound,
        closing_descriptor(open_directory(layer.upper)) as directory,
    ):
        bound.bind(f"/proc/self/fd/{directory}/socket")  # the layer's path may be too long

    assert committed(root, layer, "mkfifo pipe; rm file; mkfifo file") == ["file", "pipe", "socket"]

    assert sorted(view(root)) == ["file", "sub", "sub/deep"]


def test_bits_that_lend_rights_are_not_kept(root: Path, make_layer: MakeLayer) -> None:
    (root / "old").write_text("1")
    (root / "old").chmod(0o4755)
    (root / "same").write_text("1")
    (root / "same").chmod(0o4755)
    line = "cp file set; chmod 4755 set; chmod 2755 file; echo 1 > group; chmod 2700 group"

    named = committed(root, make_layer(root), f"{line}; echo 2 >> old; touch same; chmod u-s same")

    assert set(named) >= {"set", "file", "group"}
    modes = {path: mode & 0o7777 for path, (mode, _content) in view(root).items()}
    assert modes == {"file": 0o755, "group": 0o700, "old": 0o755, "same": 0o755, "set": 0o755} | {
        path: modes[path] for path in ("sub", "sub/deep")
    }


def test_a_hard_link_to_something_outside_is_cut(root: Path, make_layer: MakeLayer) -> None:
    other = root.parent / "outside" / "other"
    other.write_text("1\n")
    (root / "same").hardlink_to(other)

    committed(root, make_layer(root), "echo 2 >> same; ln same again")

    assert other.read_text() == "1\n"
    assert (root / "same").read_text() == (root / "again").read_text() == "1\n2\n"


def test_attributes_of_the_layer_do_not_get_out(root: Path, make_layer: MakeLayer) -> None:
    for name in ("file", "sub/deep/in", "moved"):
        (root / name).write_text("1\n")
        os.setxattr(root / name, "user.mine", b"1")
    line = (
        "echo 2 >> file; echo 2 >> sub/deep/in; mv moved to; rm -r sub; mkdir sub; echo > sub/new"
    )

    committed(root, make_layer(root), line)

    for path in (root, *root.rglob("*")):
        assert not [name for name in os.listxattr(path) if "overlay" in name], path
    assert os.getxattr(root / "file", "user.mine") == b"1"
    assert os.getxattr(root / "to", "user.mine") == b"1"


@pytest.mark.parametrize("umask", ["022", "027", "077", "002"])
def test_modes_are_those_that_the_command_alone_would_give(
    root: Path, tmp_path: Path, make_layer: MakeLayer, umask: str
) -> None:
    for top in (root, tmp_path / "plain"):
        (top / "shared").mkdir(parents=True)
        (top / "shared").chmod(0o2775)
        top.chmod(0o2750)
    line = (
        f"umask {umask}; mkdir new shared/dir; echo > new/file; echo > shared/file; "
        "echo > shared/dir/file; echo > run; chmod +x run; echo > top"
    )
    subprocess.run(["bash", "-c", line], cwd=tmp_path / "plain", check=True)

    committed(root, make_layer(root), line)

    for path in sorted((tmp_path / "plain").rglob("*")):
        there, here = path.stat(), (root / path.relative_to(tmp_path / "plain")).stat()
        assert (here.st_mode, here.st_gid) == (there.st_mode, there.st_gid), path
    assert stat.S_IMODE(root.stat().st_mode) == 0o2750

"""Whatever a command in a layer does to whatever tree, undo brings back the whole tree."""

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shepherd.config.section import SandboxMode
from shepherd.errors import UndoError
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from shepherd.undo.store import UndoLimits
from tests.examples import few
from tests.tools.sandbox.boxes import LAYERED, need
from tests.undo.project import Project, open_project, view

NAMES = [b"a", b"b.txt", b"\xff\xfe", b"two words", b"line\nbreak", b"-rf", "ä".encode()]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(b"/".join)
FILE_MODES = st.sampled_from([0o644, 0o600, 0o444, 0o400, 0o755, 0o555])
DIRECTORY_MODES = st.sampled_from([0o755, 0o700, 0o555, 0o500])
CONTENTS = st.sampled_from([b"", b"one\n", b"\0\xff", b"hole"])
TARGETS = st.sampled_from([b"a", b".", b"nowhere", b"/etc/hostname", b"../b.txt", b"\xff\xfe"])

Node = tuple[str, bytes, int]
"""A file with its content, a directory or a link with its target; the mode of the first two."""
NODES = (
    st.tuples(st.just("file"), CONTENTS, FILE_MODES)
    | st.tuples(st.just("directory"), st.just(b""), DIRECTORY_MODES)
    | st.tuples(st.just("link"), TARGETS, st.just(0))
)
FILE: Node = ("file", b"one\n", 0o644)
READ_ONLY: Node = ("directory", b"", 0o555)
TREES = st.dictionaries(PATHS, NODES, min_size=2, max_size=9)

LINES = st.sampled_from(
    """
    rm -rf {0}
    rm -rf ./*
    rm -rf {0}; mkdir -p {0}
    rm -rf {0}; mkdir -p {0}; echo new > {0}/a
    rm -rf {0}; mkdir -p {0}/two; chmod 555 {0}
    rm -rf {0}; echo file > {0}
    rm -rf {0}; ln -s {1} {0}
    chmod -R u+w .; rm -rf {0}
    chmod -R u+w {0}; rm -rf {0} {1}
    chmod -R u+w .; rm -rf ./*; echo all > {0}
    chmod -R a-w {0}
    chmod -R 700 {0}
    find . -type f -delete
    find . -depth -type d -empty -delete
    find . -type l -delete
    find {0} -exec touch {{}} +
    mv {0} {1}
    mv -T {0} {1}
    cp -r {0} {1}
    cp -a {0}/. {1}
    ln -sfn {1} {0}
    ln -f {0} {1}
    : > {0}
    echo more >> {0}
    truncate -s 100000 {0}
    mkdir -p {0}
    mkfifo {0}
    install -m 500 /dev/null {0}
    """.strip().splitlines()
)


def shell_line(line: str, *paths: bytes) -> str:
    """The line with the paths, which need not be Unicode."""
    return line.strip().format(*map(quoted, paths))


def quoted(path: bytes) -> str:
    return "$'./" + "".join(f"\\x{byte:02x}" for byte in path) + "'"


def make_tree(root: Path, nodes: dict[bytes, Node]) -> None:
    """Make the nodes that nothing is in the way of; the modes of directories come last."""
    modes: dict[Path, int] = {}
    for name, (kind, content, mode) in nodes.items():
        path = root / os.fsdecode(name)
        above = [path, *path.parents[: -len(root.parents) - 1]]
        if any(p.is_symlink() or p.is_file() for p in above):
            continue
        if path.is_dir() and kind != "directory":
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to(os.fsdecode(content))
            continue
        if kind == "directory":
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content)
        if content == b"hole":
            os.truncate(path, 1 << 20)
        modes[path] = mode
    for path, mode in reversed(modes.items()):
        path.chmod(mode)


def open_layered(
    box: Box, base: Path, limits: UndoLimits | None = None
) -> AbstractAsyncContextManager[Project]:
    finding = Finding(box, ())
    sandbox = Sandbox(SandboxMode.REQUIRED, layers=(base / "layers",), find=lambda: finding)
    return open_project(base, limits, sandbox=sandbox)


async def check(box: Box, base: Path, nodes: dict[bytes, Node], lines: list[str]) -> None:
    async with open_layered(box, base) as project:
        make_tree(project.root, nodes)
        before = view(project.root)
        text = await project.call("execute_command", command="\n".join(lines))
        assert "without a layer" not in text, text
        assert "no change was kept" not in text, text
        after = view(project.root)
        if after != before:
            await project.keeper.undo()
            assert view(project.root) == before
            await project.keeper.redo()
            assert view(project.root) == after
            await project.keeper.undo()
            assert view(project.root) == before


@pytest.mark.parametrize("box", LAYERED, ids=lambda box: box.name)
@settings(max_examples=few(100, 6), deadline=None)
@given(
    nodes=TREES, lines=st.lists(st.builds(shell_line, LINES, PATHS, PATHS), min_size=1, max_size=3)
)
@example(nodes={b"a": ("link", b"nowhere", 0)}, lines=["rm a; mkdir -p a/two; chmod 555 a"])
@example(nodes={b"a": ("link", b".", 0)}, lines=["rm a; mkdir a; echo new > a/a"])
@example(nodes={b"a/a": FILE, b"a": READ_ONLY}, lines=["chmod u+w a; rm -r a"])
@example(nodes={b"a": READ_ONLY}, lines=["rmdir a; mkdir -p a/two; chmod 555 a"])
@example(nodes={b"a": ("file", b"one\n", 0o444)}, lines=["mv a b"])
def test_undo_brings_back_any_tree(box: Box, nodes: dict[bytes, Node], lines: list[str]) -> None:
    need(box)
    with TemporaryDirectory() as name:
        try:
            asyncio.run(check(box, Path(name).resolve(), nodes, lines))
        finally:
            for directory, _, _ in os.walk(name):  # else it could not be removed
                Path(directory).chmod(0o700)


@pytest.mark.parametrize("box", LAYERED, ids=lambda box: box.name)
async def test_without_its_store_no_command_replaces_anything(box: Box, tmp_path: Path) -> None:
    need(box)
    (tmp_path / "state").write_text("not a directory")
    async with open_layered(box, tmp_path) as project:
        await project.call("execute_command", command="echo 1 > a; mkdir -p b")
        start = view(project.root)
        for line in ("rm a", "echo 2 > a", "chmod 600 a", "mv a b/c", "echo 2 > c; ln -sf c a"):
            text = await project.call("execute_command", command=line)
            assert "[its changes were not kept: what it replaces can't be kept for /undo" in text
            assert view(project.root) == start
        await project.call("execute_command", command="rmdir b")
        assert not (project.root / "b").exists()


@pytest.mark.parametrize("box", LAYERED, ids=lambda box: box.name)
async def test_a_small_store_keeps_what_it_can(box: Box, tmp_path: Path) -> None:
    need(box)
    limits = UndoLimits(max_bytes=80_000, file_bytes=80_000)
    async with open_layered(box, tmp_path, limits) as project:
        names = [f"{number}.bin" for number in range(10)]
        for name in names[:6]:
            (project.root / name).write_bytes(os.urandom(10_000))
        start = view(project.root)
        line = "for f in *; do head -c 20000 /dev/urandom > $f; done"
        await project.call("execute_command", command=line)
        with pytest.raises(UndoError, match="can't be kept for /redo: there was too much"):
            await project.keeper.undo()
        await project.keeper.undo(force=True)
        assert view(project.root) == start

        for name in names[6:]:
            (project.root / name).write_bytes(os.urandom(10_000))
        start = view(project.root)
        await project.call("execute_command", command="rm *.bin")
        assert [text.split(":")[0] for text in project.warnings] == [
            f"/undo could not bring back {name}" for name in names[7:]
        ]
        moved = await project.keeper.undo()
        assert sorted(view(project.root).items()) == sorted(start.items())[:7]
        assert dict(moved.failed) == dict.fromkeys(names[7:], "there was too much to keep")

"""File tools and commands in one layer see and change the same files, and no real ones."""

import asyncio
import os
import random
import shutil
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shepherd.config.section import ApproveMode
from shepherd.errors import ToolError
from shepherd.tools.files.edit import DeleteFile, EditFile, WriteFile
from shepherd.tools.files.read import ListDirectory, ReadFile
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.view import view_of
from shepherd.tools.paths import View
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.search.glob import Glob
from shepherd.tools.search.grep import Grep
from shepherd.tools.tool import AnyTool, ToolContext
from tests.examples import examples, few
from tests.patience import PATIENCE
from tests.tools.flipping import flipping
from tests.tools.layer.running import NAMES, make_lines, run_layered
from tests.tools.sandbox.boxes import BOXES, LAYERED, need
from tests.tools.workshop import Workshop, open_workshop
from tests.undo.project import Tree
from tests.undo.project import view as content

IGNORED = ("a\n", "d/\n*.log\n", "e/f\n!a\n", "/b\n# none\n")
SECRET, HARMLESS = "the outer secret", "the inner text"
Step = str | tuple[AnyTool, dict[str, Any]]


@pytest.fixture(autouse=True)
def _layers_work() -> None:
    need(BOXES[1])


@pytest.fixture
def layer(tmp_path: Path, make_layer: Callable[[Path], Layer]) -> Layer:
    """A layer over an empty directory."""
    (tmp_path / "project").mkdir()
    return make_layer((tmp_path / "project").resolve())


def run_plain(root: Path, line: str) -> None:
    subprocess.run(["bash", "-c", line], cwd=root, capture_output=True, check=False)


def make_steps(chance: random.Random, root: str) -> list[Step]:
    """Shell lines and calls of file tools; `root` stands for the directory."""

    def name() -> str:
        plain = chance.choice((*NAMES, "out/f", ".", ".gitignore", "d/.gitignore", "l/a"))
        return chance.choice((plain, plain, plain, f"{root}/{plain}", f"d/../{plain}"))

    def text() -> str:
        return chance.choice((*IGNORED, "".join(f"{chance.random()}\n" for _ in range(3))))

    calls: tuple[Callable[[], tuple[AnyTool, dict[str, Any]]], ...] = (
        lambda: (ReadFile(), {"path": name()}),
        lambda: (WriteFile(), {"path": name(), "content": text()}),
        lambda: (WriteFile(), {"path": f"new/{chance.choice(NAMES)}", "content": text()}),
        lambda: (EditFile(), {"path": name(), "old_string": "0.", "new_string": "1."}),
        lambda: (
            EditFile(),
            {"path": name(), "old_string": "0", "new_string": "2", "replace_all": True},
        ),
        lambda: (DeleteFile(), {"path": name()}),
        lambda: (ListDirectory(), {"path": name()}),
        lambda: (ListDirectory(), {}),
        lambda: (Glob(), {"pattern": chance.choice(("**/*", "*", "d/**", "a", "*/"))}),
        lambda: (Glob(), {"pattern": "*", "path": name()}),
        lambda: (Grep(), {"pattern": chance.choice(("0", "[12].*3", "a"))}),
        lambda: (
            Grep(),
            {"pattern": "0", "path": name(), "glob": chance.choice(("", "a", "*.log"))},
        ),
    )
    links = ("a", "d", "nowhere", f"{root}/a", f"{root}/d", "../outside", "/proc/nowhere")
    lines = (
        lambda: "; ".join(make_lines(chance)),
        lambda: f"ln -sfn '{chance.choice(links)}' '{chance.choice(NAMES)}'",
        lambda: f"ln -sfn {chance.choice(links)} l",
        lambda: "mkdir -p .git d/e; echo 0 > x.log; echo 0 > d/y.log",
        lambda: "rm -rf .git .gitignore",
        lambda: "ls -R; cat * */*",
    )
    return [
        chance.choice(calls)() if chance.random() < 0.75 else chance.choice(lines)()
        for _ in range(chance.randint(10, 30))
    ]


async def answer(tool: AnyTool, words: dict[str, Any], context: ToolContext) -> list[object]:
    """All that a call says, with the place of its project replaced."""
    arguments = tool.arguments.model_validate(words)
    answers: list[object] = []

    try:
        accesses = tool.accesses(arguments, context)
        answers.append(accesses)
        context = replace(context, grants=frozenset(accesses))
    except ToolError as error:
        answers.append(error)
    for read in (tool.preview, tool.change):
        try:
            answers.append(read(arguments, context))
        except ToolError as error:
            answers.append(error)
    try:
        answers.append(await tool.run(arguments, context))
    except ToolError as error:
        answers.append(error)
    return [str(each).replace(str(context.cwd.parent), "PLACE") for each in answers]


def project(base: Path, chance: random.Random) -> Path:
    """A directory with a few files, and a link to a directory beside it."""
    root = base / "root"
    root.mkdir(parents=True)
    (base / "outside").mkdir()
    (base / "outside/f").write_text("0.1\n")
    (base / "outside/a").write_text("0.2\n")
    line = "; ".join([*make_lines(chance), *make_lines(chance)])
    run_plain(root, line)
    (root / "out").symlink_to("../outside")
    return root


@pytest.mark.long
@pytest.mark.parametrize("seed", range(few(96, 4)))
async def test_a_layer_is_as_a_copy_to_tools_and_commands(
    seed: int, tmp_path: Path, make_layer: Callable[[Path], Layer]
) -> None:
    box = LAYERED[seed % len(LAYERED)]
    need(box)
    plain = project(tmp_path / "plain", random.Random(seed))
    shutil.copytree(tmp_path / "plain", tmp_path / "real", symlinks=True)
    real = tmp_path / "real/root"
    before = content(real)
    layer = make_layer(real)
    context = ToolContext(real, tmp_path / "spill")
    steps = make_steps(random.Random(seed), "ROOT")

    for number, step in enumerate(steps):
        if isinstance(step, str):
            line = step.replace("ROOT", str(plain))
            await asyncio.to_thread(run_plain, plain, line)
            async with layer.mounted:
                line = step.replace("ROOT", str(real))
                await asyncio.to_thread(run_layered, box, real, layer, line)
        else:
            tool, words = step
            plain_words = {k: str(w).replace("ROOT", str(plain)) for k, w in words.items()}
            expected = await answer(tool, plain_words, replace(context, cwd=plain))
            async with view_of(layer) as view:
                words = {k: str(w).replace("ROOT", str(real)) for k, w in words.items()}
                assert await answer(tool, words, replace(context, view=view)) == expected
        async with view_of(layer) as view:
            assert merged(view, real) == relinked(plain, real), (number, step)
    assert content(real) == before
    assert content(real.parent / "outside") == content(plain.parent / "outside")

    effect = read_effect(layer)
    commit(layer, effect.changes)
    left_out = [path for path, _why in effect.left_out]  # links that lead out
    assert without(left_out, content(real)) == without(left_out, relinked(plain, real))


def without(paths: Sequence[str], tree: Tree) -> Tree:
    """The tree without these paths, and without what is in them."""
    tops = {*paths}
    return {p: v for p, v in tree.items() if not tops & {p, *map(str, Path(p).parents)}}


def merged(view: View, root: Path) -> Tree:
    """The content of the directory in a view."""
    with view.use() as origin:
        return content(origin.place(root))


def relinked(plain: Path, real: Path) -> Tree:
    """The content of the plain directory, with links to it as those to the real one."""
    tree = content(plain)
    old, new = os.fsencode(plain), os.fsencode(real)
    return {
        name: (mode, data.replace(old, new) if mode == 0 else data)
        for name, (mode, data) in tree.items()
    }


@asynccontextmanager
async def open_shop(
    tmp_path: Path,
    layer: Layer,
    rules: Iterable[str] = (),
    registry: ToolRegistry | None = None,
) -> AsyncGenerator[tuple[Workshop, Path]]:
    """Calls in a view, which may touch what is in the project, and where others find its root."""
    inside = ["allow write {cwd}/**", "allow read {cwd}/**", *rules]
    async with view_of(layer) as view:
        shop = open_workshop(
            tmp_path, mode=ApproveMode.ASK, rules=inside, registry=registry, view=view
        )
        with view.use() as origin:
            place = Path(f"/proc/{os.getpid()}", *origin.place(shop.root).parts[3:])
        yield shop, place


@pytest.mark.long
async def test_links_that_are_swapped_in_lead_nowhere(tmp_path: Path, layer: Layer) -> None:
    calls: list[tuple[str, dict[str, str]]] = [
        ("read_file", {"path": "inner/a.txt"}),
        ("write_file", {"path": "inner/a.txt", "content": HARMLESS}),
        ("write_file", {"path": "inner/deeper/new/b.txt", "content": HARMLESS}),
        ("edit_file", {"path": "inner/a.txt", "old_string": "the", "new_string": "the the"}),
        ("delete_file", {"path": "inner/deeper/new/b.txt"}),
        ("list_directory", {"path": "inner"}),
        ("glob", {"pattern": "inner/**/*"}),
        ("grep", {"pattern": "the", "path": "inner"}),
    ]
    results: list[str] = []
    async with open_shop(tmp_path, layer) as (shop, place):
        (place / "inner/deeper").mkdir(parents=True)
        (place / "inner/a.txt").write_text(HARMLESS)
        (place / "outer").symlink_to(shop.outside)
        (shop.outside / "deeper").mkdir()
        (shop.outside / "a.txt").write_text(SECRET)
        before = content(shop.outside)
        with flipping(place / "inner", place / "outer") as flips:
            while flips.count < examples(4_000) or len(results) < examples(800):
                results += [await shop.call(name, **words) for name, words in calls]
        if (place / "inner").is_symlink():
            (place / "inner").rename(place / "link")
            (place / "outer").rename(place / "inner")
        results += [await shop.call(name, **words) for name, words in calls]
        assert content(shop.outside) == before

    assert not any(SECRET in result for result in results)
    for part in (HARMLESS, "Wrote", "Edited", "Deleted", "a.txt", "inner/deeper", "inner/a.t"):
        assert any(part in result for result in results), part


async def test_what_git_ignores_in_the_layer_is_left_out(tmp_path: Path, layer: Layer) -> None:
    (layer.root / "src").mkdir()
    registry = ToolRegistry([Glob(), Grep()])
    async with open_shop(tmp_path, layer, registry=registry) as (shop, place):
        for name in ("src/a", "src/b.log", "build/a"):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text("needle\n")
        before = await shop.call("grep", pattern="needle")
        (place / ".git").mkdir()
        (place / ".gitignore").write_text("build\n")
        (place / "src/.gitignore").write_text("*.log\n")
        found = [
            await shop.call("grep", pattern="needle"),
            await shop.call("grep", pattern="needle", path="src"),
            await shop.call("grep", pattern="needle", path="build"),
            await shop.call("glob", pattern="{a,b.log}"),
        ]

    assert before.splitlines() == [f"{n}:1: needle" for n in ("build/a", "src/a", "src/b.log")]
    assert found == ["src/a:1: needle", "src/a:1: needle", "build/a:1: needle", "src/a"]


async def test_a_secret_keeps_all_its_names(tmp_path: Path, layer: Layer) -> None:
    (layer.root / "key").write_text(SECRET)
    (layer.root / "other").hardlink_to(layer.root / "key")
    async with open_shop(tmp_path, layer, ["deny read {cwd}/key"]) as (shop, place):
        (place / "plain").write_text(SECRET)
        (place / "linked").hardlink_to(place / "plain")
        found = await shop.call("grep", pattern="secret")
        denied = await shop.call("read_file", path="other")

    assert found.splitlines() == [f"linked:1: {SECRET}", f"plain:1: {SECRET}"]
    assert "denied by rule" in denied


async def test_a_stopped_call_has_left_the_view_when_it_closes(layer: Layer) -> None:
    """Its thread goes on, and another file may get the number of a closed descriptor."""
    entered, go_on = threading.Event(), threading.Event()
    log: list[str] = []

    def work(view: View) -> None:
        with view.use() as origin:
            entered.set()
            go_on.wait(PATIENCE)
            log.append(origin.place(layer.root / "a").read_text())
        try:
            with view.use():
                log.append("used again")
        except OSError:
            log.append("refused")

    (layer.root / "a").write_text("text")
    async with asyncio.TaskGroup() as tasks:
        async with view_of(layer) as view:
            thread = tasks.create_task(asyncio.to_thread(work, view))
            await asyncio.to_thread(entered.wait, PATIENCE)
            asyncio.get_running_loop().call_later(0.05, go_on.set)
        log.append("closed")
        await thread

    assert log in (["text", "closed", "refused"], ["text", "refused", "closed"])


async def test_one_view_at_a_time_and_none_beside_a_command(layer: Layer) -> None:
    open_views = 0

    async def use() -> None:
        nonlocal open_views
        async with view_of(layer):
            open_views += 1
            assert open_views == 1
            assert layer.mounted.locked()
            await asyncio.sleep(0)
            open_views -= 1

    await asyncio.gather(*(use() for _ in range(10)))
    async with layer.mounted:
        waiting = asyncio.ensure_future(use())
        await asyncio.sleep(0.05)
        assert not waiting.done()
    await waiting


async def test_a_view_that_is_not_waited_for_is_closed(layer: Layer) -> None:
    async def use() -> None:
        async with view_of(layer):
            await asyncio.sleep(0.001)

    await use()
    before = open_count()
    for delay in range(40):
        task = asyncio.ensure_future(use())
        await asyncio.sleep(delay / 5000)
        task.cancel()
        await asyncio.wait([task])
        assert not layer.mounted.locked()

    assert open_count() == before


def open_count() -> int:
    """How many descriptors this process has."""
    return len([*Path("/proc/self/fd").iterdir()])


async def test_a_layer_that_is_gone_is_reported_and_the_next_is_opened(
    layer: Layer, tmp_path: Path
) -> None:
    (layer.base / "upper").rename(tmp_path / "upper")
    with pytest.raises(ToolError, match="the layer can't be opened: no such file or directory"):
        async with view_of(layer):
            pass
    (tmp_path / "upper").rename(layer.base / "upper")
    async with view_of(layer) as view:
        assert merged(view, layer.root) == {}


async def test_no_process_stays_behind_a_view(layer: Layer) -> None:
    def children() -> set[int]:
        texts = Path("/proc/self/task").glob("*/children")
        return {int(number) for text in texts for number in text.read_text().split()}

    before = children()
    async with view_of(layer) as view:
        assert merged(view, layer.root) == {}
        assert children() <= before

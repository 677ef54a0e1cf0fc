"""glob and grep."""

import glob as stdlib_glob
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.tools.paths import escape_glob, glob_regex
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.search import ripgrep
from shepherd.tools.search.glob import Glob, name_matcher
from shepherd.tools.search.grep import Grep
from tests.examples import examples
from tests.tools.workshop import Workshop, open_workshop

FILES = {
    "a.py": b"import os\nx = 'needle'\n",
    "a.txt": b"needle one\r\nno\r\nneedle two",
    "a/b.py": b"\tneedle\n",
    "a/c d.md": b"# Needle\nneedle: yes\n",
    "a/.hidden/x.py": b"needle\n",
    ".git/config": b"needle\n",
    "node_modules/m.js": b"needle\n",
    "blob": b"\0\1needle\n",
    "latin": "né needle\n".encode("latin-1"),
    ".env": b"NEEDLE=needle\n",
    "certs/server.pem": b"needle\n",
}


def fill(root: Path) -> None:
    for name, data in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def searcher(base: Path) -> Workshop:
    workshop = open_workshop(base, registry=ToolRegistry([Grep()]))
    fill(workshop.root)
    return workshop


async def test_matches_in_order_without_secrets(tmp_path: Path) -> None:
    workshop = searcher(tmp_path)
    (workshop.outside / "o.py").write_text("needle\n")
    (workshop.root / "link").symlink_to(workshop.outside)
    (workshop.root / "file-link").symlink_to(workshop.outside / "o.py")
    assert (await workshop.call("grep", pattern="needle")).split("\n") == [
        "a/.hidden/x.py:1: needle",
        "a/b.py:1: \tneedle",
        "a/c d.md:2: needle: yes",
        "a.py:2: x = 'needle'",
        "a.txt:1: needle one",
        "a.txt:3: needle two",
        "latin:1: n\ufffd needle",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "needle$", "path": "a"}, "a/.hidden/x.py:1: needle\na/b.py:1: \tneedle"),
        ({"pattern": "^needle", "path": "a.txt"}, "a.txt:1: needle one\na.txt:3: needle two"),
        ({"pattern": "needle", "path": "a.py", "glob": "*.md"}, "a.py:2: x = 'needle'"),
        ({"pattern": "(?i)needle:?", "glob": "*.md"},
         "a/c d.md:1: # Needle\na/c d.md:2: needle: yes"),
        ({"pattern": "needle", "glob": "a/*.py"}, "a/b.py:1: \tneedle"),
        ({"pattern": "needle", "glob": "*.{py,md}", "path": "./a/"},
         "a/.hidden/x.py:1: needle\na/b.py:1: \tneedle\na/c d.md:2: needle: yes"),
        ({"pattern": "one$"}, "a.txt:1: needle one"),
        ({"pattern": "-e"}, "(no matches)"),
        ({"pattern": "nothing like it"}, "(no matches)"),
        ({"pattern": "needle", "path": ".env"}, "Error: denied by rule: deny read /**/.env"),
        ({"pattern": "needle", "path": "gone"}, "Error: no such file: gone"),
        ({"pattern": "a(b"}, "Error: bad pattern: unclosed group"),
        ({"pattern": "(?<=x = ')needle"},
         "Error: bad pattern: look-around, including look-ahead and look-behind, is not supported"),
        ({"pattern": "--files"}, "(no matches)"),
        ({"pattern": "needle", "glob": "[ac]*d.md"}, "a/c d.md:2: needle: yes"),
        ({"pattern": "needle", "glob": "{a,{"}, "(no matches)"),
        ({"pattern": "needle", "glob": "node_modules/*"}, "node_modules/m.js:1: needle"),
        ({"pattern": "needle", "path": "node_modules"}, "node_modules/m.js:1: needle"),
    ],
)  # fmt: skip
async def test_arguments(tmp_path: Path, arguments: dict[str, str], expected: str) -> None:
    assert await searcher(tmp_path).call("grep", **arguments) == expected


async def test_too_many_matches_are_cut(tmp_path: Path) -> None:
    workshop = searcher(tmp_path)
    (workshop.root / "many").write_text("hay\n" * 100_000)
    (workshop.root / "wide").write_text("w" * 1_000_000 + "hay!")
    lines = (await workshop.call("grep", pattern="hay")).split("\n")
    assert lines[-2:] == ["many:500: hay", "[more matches; narrow the search]"]
    wide = await workshop.call("grep", pattern="hay!")
    assert wide == "wide:1: " + "w" * 400 + "…"


async def test_a_search_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path, registry=ToolRegistry([Grep(), Glob()]), timeout=0.5)
    (workshop.root / "a").touch()
    (workshop.root / ".git").mkdir()
    os.mkfifo(workshop.root / ".gitignore")  # opening it takes for ever
    for call in (workshop.call("grep", pattern="a"), workshop.call("glob", pattern="a")):
        assert await call == "Error: timed out after 0.5 s"


async def test_without_ripgrep_the_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_name: str) -> None:
        return None

    monkeypatch.setattr(ripgrep, "packaged_program", missing)
    workshop = open_workshop(tmp_path)
    for call in (workshop.call("grep", pattern="a"), workshop.call("glob", pattern="a")):
        assert await call == f"Error: {ripgrep.MISSING}"


async def test_an_empty_directory_is_not_found_by_name(workshop: Workshop) -> None:
    (workshop.root / "empty").mkdir()
    (workshop.root / "full/deep").mkdir(parents=True)
    (workshop.root / "full/deep/a").touch()
    assert await workshop.call("glob", pattern="*/") == "full/\nfull/deep/"


async def test_a_private_directory_is_not_entered(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path, rules=["deny read private/**"])
    (workshop.root / "private").mkdir()
    (workshop.root / "private/a.txt").write_text("needle")
    (workshop.root / "b.txt").write_text("needle")
    assert await workshop.call("grep", pattern="needle") == "b.txt:1: needle"
    assert await workshop.call("glob", pattern="**/*.txt") == "b.txt"
    assert (await workshop.call("list_directory", path="private")).startswith("Error: denied")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "*.py"}, "a/.hidden/x.py\na/b.py\na.py"),
        ({"pattern": "./*.txt"}, "a.txt"),
        ({"pattern": "a/*"}, "a/.hidden/\na/b.py\na/c d.md"),
        ({"pattern": "*.py", "path": "a"}, ".hidden/x.py\nb.py"),
        ({"pattern": "a"}, "a/"),
        ({"pattern": "*/"}, "a/\na/.hidden/\ncerts/"),
        ({"pattern": "node_modules/*"}, "node_modules/m.js"),
        ({"pattern": "{a,latin}"}, "a/\nlatin"),
        ({"pattern": "*.zip"}, "(no matches)"),
        ({"pattern": "~*"}, "(no matches)"),
        ({"pattern": "*", "path": "gone"}, "Error: no such directory: gone"),
        ({"pattern": "a/../../*"}, "Error: bad pattern: .. is allowed at its start only"),
    ],
)
async def test_glob(workshop: Workshop, arguments: dict[str, str], expected: str) -> None:
    fill(workshop.root)
    assert await workshop.call("glob", **arguments) == expected


async def test_glob_outside_is_seen_as_outside(tmp_path: Path) -> None:
    from shepherd.config.section import ApproveMode
    from shepherd.tools.permissions.approval import Choice

    workshop = open_workshop(tmp_path, mode=ApproveMode.ASK, answers=[Choice.ONCE, Choice.ONCE])
    (workshop.outside / "o.py").touch()
    assert await workshop.call("glob", pattern="../outside/*.py") == "../outside/o.py"
    result = await workshop.call("glob", pattern=f"{workshop.outside}/*")
    assert result == f"{workshop.outside}/o.py"
    assert workshop.request_count == 2


NAMES = st.lists(st.sampled_from(["a", "b", "ab", ".c", "a.b"]), min_size=1, max_size=3)
PARTS = st.lists(st.sampled_from(["a", "*", "**", "?", "[ab]", "[!a]", "a*", "*b", ".c", "*.b"]),
                 min_size=2, max_size=4)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(trees=st.lists(NAMES, max_size=5), parts=PARTS)
def test_globs_mean_what_they_mean_elsewhere(
    tmp_path: Path, trees: list[list[str]], parts: list[str]
) -> None:
    root = tmp_path / "tree"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for tree in trees:
        root.joinpath(*tree).mkdir(parents=True, exist_ok=True)
    pattern = "/".join(parts)
    expected = {
        p.rstrip("/")
        for p in stdlib_glob.glob(pattern, root_dir=root, recursive=True, include_hidden=True)  # noqa: PTH207
    }
    ours = name_matcher(pattern)
    result = {
        str(p.relative_to(root))
        for p in root.rglob("*")
        if ours.fullmatch(str(p.relative_to(root)))
    }
    # the standard library also yields `a/` for `a/**` where there is no `a`
    assert result == {path for path in expected if path and (root / path).exists()}


@given(st.text("ab*?[]{},!^-\\/", min_size=1), st.text("ab*?[]{},!^-\\/"))
def test_an_escaped_name_matches_itself_only(text: str, other: str) -> None:
    import re

    regex = re.compile(glob_regex(escape_glob(text)), re.DOTALL)
    assert regex.fullmatch(text)
    assert (regex.fullmatch(other) is not None) == (other == text)

"""The pages say what is true: links, names of files, codes, topics, and what projects may set."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts.generate_settings import may_be_set_by_projects
from scripts.sentences import ROOT, sentences, too_long, written_pages
from shepherd.backends.api.http import failures
from shepherd.config.layers import Layer
from shepherd.config.settings import LayerName, Source, all_fields
from shepherd.config.trust import UNRESTRICTED, admit
from shepherd.conversation.shared.updates import RefusalCode, UpdateKind
from shepherd.events import Topic
from shepherd.knowledge.commands import INIT
from shepherd.knowledge.instructions import USE_SKILL
from shepherd.memory.store import OWN_TOOLS
from shepherd.tools.deferred import RESERVED_NAMES
from shepherd.tools.registry import builtin_tools

PAGES = [*written_pages(), *sorted((ROOT / "docs" / "reference").glob("*.md"))]
EXAMPLES = frozenset({"setup.py", "src/main.py", "a.py"})
CODE = re.compile(r"[a-z]+(?:_[a-z]+)+")

page_by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text("utf-8")), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def is_kept(path: Path) -> bool:
    """Whether there is such a file, or a folder with more than caches."""
    if not path.is_dir():
        return path.exists()
    return any(entry.name != "__pycache__" for entry in path.iterdir())


def broken_links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        linked = (page.parent / path).resolve() if path else page
        if not is_kept(linked) or (anchor and anchor not in anchors(linked)):
            yield target


@page_by_page
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](#one-two) [b](#two) [c](page.md#one-two) [d](none.md)\n")
    assert list(broken_links(page)) == ["#two", "none.md"]


@page_by_page
def test_files_that_are_named_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":  # tells of files as they were
        return
    known = [path.relative_to(ROOT).as_posix() for path in files()]
    named = set(re.findall(r"`((?:[\w.-]+/)*[\w-]+\.py)`", page.read_text("utf-8"))) - EXAMPLES
    assert [n for n in sorted(named) if not any(f"/{k}".endswith(f"/{n}") for k in known)] == []


@page_by_page
def test_classes_that_are_named_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return
    named = set(re.findall(r"`(?:\w+\.)*([A-Z][a-z]+[A-Z]\w+)[.(\w)]*`", page.read_text("utf-8")))
    assert named - words_of_the_code() == set()


@cache
def files() -> list[Path]:
    folders = ("shepherd", "tests", "scripts", "bench", "training")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


@cache
def words_of_the_code() -> frozenset[str]:
    texts = (path.read_text("utf-8") for path in files())
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def error_codes() -> set[str]:
    """What may stand in `code` of an error object."""
    passed_on = {getattr(failures, name) for name in ("ACCESS", "REFUSED", "UNREACHABLE", "BUSY")}
    codes = {failures.FAILED, *passed_on, *(str(code) for code in RefusalCode)}
    for path in (ROOT / "shepherd" / "server").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            # `ApiError(…)` or `errors.ApiError(…)`
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ApiError"):
                given = [k.value for k in node.keywords if k.arg == "code"] or node.args[2:3]
                codes.update(*(constants(code, tree, set()) for code in given))
    return codes


def constants(node: ast.AST, tree: ast.Module, seen: set[str]) -> set[str]:
    """The codes in an expression, and in what is assigned to its names."""
    codes = set[str]()
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            codes |= {part.value} if CODE.fullmatch(part.value) else set()
        elif isinstance(part, ast.Name) and part.id not in seen:
            for value in assigned(part.id, tree):
                codes |= constants(value, tree, seen | {part.id})
    return codes


def assigned(name: str, tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        names = (part for target in targets for part in ast.walk(target))
        if any(isinstance(part, ast.Name) and part.id == name for part in names):
            value = getattr(node, "value", None)
            if isinstance(value, ast.expr):
                yield value


def test_the_tables_of_errors_have_all_codes_and_no_others() -> None:
    rows = (
        line
        for name in ("server.md", "cliserver.md")
        for line in (ROOT / "docs" / name).read_text("utf-8").splitlines()
        if re.match(r"\| [45]\d\d", line)
    )
    named = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row.split("|")[2])}
    assert named == error_codes()


def test_json_lines_name_all_topics() -> None:
    (row,) = re.findall(
        r"^\| `system` \|.*$",
        (ROOT / "docs" / "reference" / "json.md").read_text("utf-8"),
        re.MULTILINE,
    )
    named = re.findall(r"`([a-z]+)`", row.split("and `content`")[0])
    assert set(named) - {"system", "topic"} == {
        str(topic) for topic in Topic if topic is not Topic.PREFILL
    }


def test_the_settings_page_says_what_a_project_may_set() -> None:
    values = {key: field.default for key, field in all_fields().items()}
    source = Source(LayerName.PROJECT)
    layer = Layer(LayerName.PROJECT, values, dict.fromkeys(values, source))
    refused = [
        re.search(r"(\S+) ignored: a project's file may not set it", warning)
        for warning in admit(layer, values)[1]
    ]
    assert {match[1] for match in refused if match} == {
        key for key in values if may_be_set_by_projects(key) == "no"
    }


def test_the_page_on_configuration_names_all_that_a_project_may_set() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    table = text.partition("## What a project's file may do")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+\.[a-z_*]+)`", table))
    allowed = {key for key in all_fields() if may_be_set_by_projects(key) != "no"}
    exact = {key for key in allowed if not key.startswith(("sampling.", "llamacpp.cache_type_"))}
    assert allowed >= UNRESTRICTED
    assert named - {"llamacpp.cache_type_*"} == exact


def table_cells(name: str, heading: str) -> str:
    """The first cells of the tables below a heading of a page."""
    text = (ROOT / "docs" / name).read_text("utf-8")
    part = text.partition(f"{heading}\n")[2].partition("\n## ")[0]
    return "\n".join(line.split(" | ")[0] for line in part.splitlines() if line[:1] == "|")


def test_all_kinds_of_updates_are_described() -> None:
    named = re.findall(r"`([a-z_]+)`", table_cells("cliserver.md", "## Updates"))
    assert sorted(named) == sorted(UpdateKind)


def test_all_slash_commands_are_described() -> None:
    folders = (ROOT / "shepherd" / place / "commands" for place in ("conversation", "cli/repl"))
    code = "".join(path.read_text("utf-8") for f in folders for path in f.glob("*.py"))
    named = re.findall(r"`/([a-z]+)", table_cells("terminal.md", "## Commands"))
    assert set(named) == {INIT, *re.findall(r"\bCommand\(\s*\"([a-z]+)\"", code)}


def test_all_tools_are_described() -> None:
    named = set(re.findall(r"`([a-z_]+)", table_cells("tools.md", "# Tools")))
    own = {tool.name for tool in builtin_tools()} | OWN_TOOLS | RESERVED_NAMES
    assert named == own | {"ask_", "task", USE_SKILL}


@page_by_page
def test_settings_that_are_named_exist(page: Path) -> None:
    if page.name in ("CHANGELOG.md", "packages.md"):
        return
    known = {*all_fields()}
    sections = "|".join({key.partition(".")[0] for key in known})
    text = page.read_text("utf-8")
    named = set(re.findall(rf"`((?:{sections})\.[a-z_]+)(?: = [^`]*)?`", text))
    assert {key for key in named - known if not key.endswith((".py", ".toml"))} == set()


@page_by_page
def test_commands_and_options_that_are_named_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    blocks = re.findall(r"^ *```(?:sh|bash|console\b.*)$(.*?)```", text, re.DOTALL | re.MULTILINE)
    shell = re.sub(r"\\\n\s*", "", "".join(blocks))
    lines = re.findall(r"^ *(?:\$ )?(shepherd [^#\n]*)", shell, re.MULTILINE)
    inline = re.findall(r"`(?!`)(shepherd [^`]*)`", without_code(text))
    named = [*lines, *inline]
    assert [(line, word) for line in named if (word := unknown(line))] == []


@pytest.mark.parametrize(
    "line",
    [
        "shepherd herd claude",
        "shepherd model choose",
        "shepherd sessions show|forget ID",
        "shepherd model info FILE --fit",
        "shepherd -m doctor pick",
        "shepherd --fits",
        "shepherd -e hello --days 3",
    ],
)
def test_a_command_that_does_not_exist_is_seen(line: str) -> None:
    assert unknown(line)


@pytest.mark.parametrize(
    "line",
    [
        "shepherd",
        "shepherd -p work/gpt-5",
        "shepherd --context-size 4096 model info FILE",
        "shepherd mcp add notes -- program --any",
        "shepherd usage --days 3 | shepherd-other pick",
        "shepherd ctl",
        "shepherd sessions list|show ID",
    ],
)
def test_a_command_that_exists_is_known(line: str) -> None:
    assert not unknown(line)


def unknown(line: str) -> str:
    """The first word of a line that is no command and no option of its command, or ""."""
    plain = re.sub(r"\"[^\"]*\"|'[^']*'", "TEXT", line)
    words = re.split(r"\s(?:--\s|[|;&<>])", f"{plain} ")[0].split()[1:]
    path, expected = (), False
    for word in words:
        options = commands()[path]
        flag, _, given = word.partition("=")
        if expected:
            expected = False
        elif re.match(r"--?[a-zA-Z]", word):
            if flag not in options:
                return word
            expected = options[flag] and not given
        elif all((*path, name) in commands() for name in word.split("|")):  # `show|remove NAME`
            path = (*path, word.split("|")[0])
        elif any(known[:-1] == path for known in commands()) and word.islower():
            return word
    return ""


@cache
def commands() -> dict[tuple[str, ...], dict[str, bool]]:
    """The options of each command and group, and whether they take a value."""
    text = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    known: dict[tuple[str, ...], dict[str, bool]] = {}
    for heading, section in re.findall(
        r"^## `shepherd(.*?)`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    ):
        path = tuple(word for word in heading.split() if word.islower())
        rows = re.findall(r"^\| (`-.*?) \| (.*?) \|", section, re.MULTILINE)
        options = {flag: bool(value) for row, value in rows for flag in re.findall("`(.+?)`", row)}
        known.update({path[:depth]: {} for depth in range(len(path)) if path[:depth] not in known})
        known[path] = {"--help": False, **options}
    return known


@page_by_page
def test_sentences_are_short(page: Path) -> None:
    assert [f"{page.name}:{s.line}: {s.text}" for s in too_long(page)] == []


def test_each_source_of_the_comparison_is_used_and_there() -> None:
    text, _, sources = (ROOT / "docs" / "compare.md").read_text("utf-8").partition("## Sources")
    used = {int(number) for number in re.findall(r"\[(\d+)\]", text)}
    listed = [int(number) for number in re.findall(r"^(\d+)\. ", sources, re.MULTILINE)]
    assert listed == list(range(1, len(listed) + 1))
    assert used == set(listed)


def test_each_folder_of_tests_is_on_the_map() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    others = {name for name in folders if not is_kept(ROOT / "shepherd" / name)}
    assert {name for name in others if f"](tests/{name})" not in text} == set()


def test_sentences_are_told_apart() -> None:
    text = (
        "# A title\n\nOne `a. B` two. Three\nfour! (Five)\n\n```\nnot. This\n```\n- six\n- seven\n"
    )
    counts = [(s.line, s.words) for s in sentences(text)]
    assert counts == [(1, 2), (3, 3), (3, 2), (3, 1), (9, 1), (10, 1)]

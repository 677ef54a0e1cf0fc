"""Names are nouns of the field, not participles that each reader must guess."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "shepherd"
PRIVATE = frozenset(
    [
        "asked",
        "doomed",
        "found",
        "given",
        "gone",
        "lenient",
        "roomy",
        "shown",
        "told",
        "toolless",
        "unheard",
        "wanted",
    ]
)
WORD = re.compile("[A-Z]?[a-z]+")
ANYWHERE = re.compile("|".join(PRIVATE), re.IGNORECASE)


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that a module gives, each with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name, node.lineno
            case _:
                pass


def private(name: str) -> bool:
    """Whether a word of a name is on the list."""
    return any(word.lower() in PRIVATE for word in WORD.findall(name))


@pytest.mark.parametrize("name", ["shown", "_is_asked", "FoundFile", "last_given"])
def test_the_list_is_compared_word_by_word(name: str) -> None:
    assert private(name)
    assert not private("foundation")


def test_no_name_is_a_private_word() -> None:
    places = [
        f"{path.relative_to(PACKAGE)}:{line} {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if ANYWHERE.search(text := path.read_text("utf-8"))
        for name, line in names(ast.parse(text))
        if private(name)
    ]
    assert not places

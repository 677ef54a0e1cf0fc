"""Objects get what they need in their constructors: nothing that they call is set from outside."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "shepherd"
ROOMS = ("cli", "conversation", "server")


@dataclass(frozen=True)
class Names:
    """The names of functions and of methods; a name that is also one of data is left out."""

    functions: set[str]
    methods: set[str]


def names_of(*texts: str) -> Names:
    """The names that modules define."""
    functions, methods, data = set[str](), set[str](), set[str]()
    for node in (node for text in texts for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    (data if part.decorator_list else methods).add(part.name)
                elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    data.add(part.target.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            data.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            data.add(node.id)
        elif isinstance(node, ast.arg):
            data.add(node.arg)
    return Names(functions - methods - data, methods - data)


def assignments(tree: ast.AST) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """The attributes that are set, with their values, also in `a.b, c.d = e, f`."""
    for node in ast.walk(tree):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs += zip(target.elts, value.elts, strict=False)
            elif isinstance(target, ast.Attribute):
                yield target, value


def is_callback(value: ast.expr, names: Names) -> bool:
    match value:
        case ast.Lambda():
            return True
        case ast.Name(id=name):
            return name in names.functions
        case ast.Attribute(attr=name):
            return name in names.methods
        case ast.Call(func=ast.Name(id="partial")):
            return True
        case ast.IfExp(body=body, orelse=other):
            return is_callback(body, names) or is_callback(other, names)
        case _:
            return False


def is_extension(target: ast.expr, value: ast.expr) -> bool:
    """Whether the value is what the attribute has already, and more: `a.steps = (*a.steps, b)`."""
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    whole = [part.value for part in parts if isinstance(part, ast.Starred)]
    return ast.unparse(target) in map(ast.unparse, whole)


def callbacks_set_from_outside(text: str, names: Names) -> list[str]:
    return [
        ast.unparse(target)
        for target, value in assignments(ast.parse(text))
        if not (isinstance(target.value, ast.Name) and target.value.id == "self")
        and (is_callback(value, names) or is_extension(target, value))
    ]


@pytest.mark.parametrize(
    "line",
    [
        "other.when_ended = lambda: None",
        "other.when_ended = g",
        "other.when_ended: object = self.f",
        "self.other.when_ended = partial(print, 1)",
        "other.a, other.when_ended = 1, self.f",
        "other.when_ended = None if other is None else partial(print, 1)",
        "self.other.when_ended = (*self.other.when_ended, self)",
    ],
)
def test_a_callback_is_seen_however_it_is_set(line: str) -> None:
    text = f"class C:\n  def f(self, other):\n    {line}\ndef g(): pass\n"
    (name,) = callbacks_set_from_outside(text, names_of(text))
    assert name.endswith("other.when_ended")


def test_what_an_object_sets_on_itself_and_data_are_none() -> None:
    lines = ["self.when_ended = self.f", "other.size = 3", "other.name = self.name"]
    lines.append("self.all = (*self.all, other)")
    text = "\n    ".join(["class C:\n  def f(self, other):", *lines])
    assert callbacks_set_from_outside(text, names_of(text)) == []


def test_no_callback_is_set_from_outside() -> None:
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    names = names_of(*texts.values())
    places = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path, text in texts.items()
        if path.relative_to(PACKAGE).parts[0] in ROOMS
        for name in callbacks_set_from_outside(text, names)
    }
    assert places == set()

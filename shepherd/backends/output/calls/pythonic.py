"""Calls as Python: `[name(key="value"), …]`, `name(key=1)` or `name.call(key=1)`."""

import ast
from typing import Any

from shepherd.backends.output.calls.catalog import FoundCall, ToolCatalog

_JSON_WORDS = {"true": True, "false": False, "null": None}


def parse_pythonic(text: str, catalog: ToolCatalog) -> tuple[FoundCall, ...]:
    """The calls in `text`; empty if it is anything but calls with literal keyword arguments."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        items = tree.elts if isinstance(tree, ast.List) else [tree]
        calls = [_call(item, catalog) for item in items]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    found = tuple(c for c in calls if c is not None)
    return found if len(found) == len(calls) else ()


def _call(node: ast.expr, catalog: ToolCatalog) -> FoundCall | None:
    if not isinstance(node, ast.Call) or node.args:
        return None
    name = ast.unparse(node.func)
    tool = catalog.known(name) or catalog.known(name.removesuffix(".call"))
    if tool is None:
        return None
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            return None
        arguments[keyword.arg] = ast.literal_eval(_JsonWords().visit(keyword.value))
    return next(iter(catalog.from_value({"name": tool, "arguments": arguments})), None)


class _JsonWords(ast.NodeTransformer):
    """Takes `true`, `false` and `null`, which LFM writes inside objects, for their values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _JSON_WORDS:
            return ast.copy_location(ast.Constant(_JSON_WORDS[node.id]), node)
        return node

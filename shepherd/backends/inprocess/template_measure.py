"""Finds chat templates that are odd, without running them.

A template comes with a model's file, and so from anybody. It is a program that may take any time
and memory. The templates of real models use few of Jinja's means. `render_guard` bounds what these
few can do. A template that uses others is odd, and `render_process` renders it where it can be
ended. It may be harmless: then it only costs a millisecond more.
"""

from collections.abc import Collection, Iterator, Mapping

from jinja2 import nodes

MAX_PLAIN_SOURCE = 65_536
"""Characters; the longest known template has 17,000."""

_MAX_NUMBER = 100_000
_MAX_INDENT = 16
_MAX_PIECE = 256
"""Characters of a text that is written between items."""
_MAX_REPLACEMENT = 32
_MAX_VARIABLES = 64
"""Variables in one expression, which may be joined to one text."""

_NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.NSRef,
    nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Operand, nodes.Compare, nodes.And, nodes.Or,
    nodes.Not, nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.FloorDiv, nodes.Div, nodes.Mod,
    nodes.Concat, nodes.CondExpr, nodes.If, nodes.For, nodes.Assign, nodes.AssignBlock,
    nodes.Macro, nodes.Call, nodes.Filter, nodes.Test, nodes.List, nodes.Tuple, nodes.Dict,
    nodes.Pair, nodes.Keyword, nodes.Break, nodes.Continue,
)  # fmt: skip

_DISPLAYS = (nodes.List, nodes.Dict, nodes.Tuple)
_BINDING = (nodes.Assign, nodes.For, nodes.Keyword, nodes.Call)

_FILTERS = frozenset(
    {
        "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first",
        "float", "from_json", "indent", "int", "items", "join", "last", "length", "list", "lower",
        "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "safe",
        "select", "selectattr", "sort", "string", "title", "tojson", "trim", "unique", "upper",
    }
)  # fmt: skip
_MAPPED = frozenset(
    {
        "capitalize", "first", "float", "int", "last", "length", "lower", "string", "title", "trim",
        "upper",
    }
)  # fmt: skip
_METHODS = frozenset(
    {
        "capitalize", "count", "endswith", "find", "get", "index", "isalnum", "isalpha",
        "isdigit", "islower", "isnumeric", "isspace", "isupper", "items", "join", "keys",
        "lower", "lstrip", "partition", "pop", "removeprefix", "removesuffix", "replace",
        "rfind", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
        "title", "upper", "values",
    }
)  # fmt: skip
_FUNCTIONS = frozenset({"namespace", "raise_exception", "range", "strftime_now"})


def oddity(template: nodes.Template) -> str:
    """What this template does that others don't, as the end of "it uses"; "" for a plain one."""
    macros = {macro.name: macro for macro in template.find_all(nodes.Macro)}
    try:
        reasons = (_odd(node, macros) for node in template.find_all(nodes.Node))
        return next(filter(None, reasons), "") or _nested(template, macros)
    except RecursionError:
        return "too many levels"


def _odd(node: nodes.Node, macros: Collection[str]) -> str:
    """What is odd about this node by itself."""
    is_plain = True
    match node:
        case nodes.Const(value=int() as number):
            is_plain = abs(number) <= _MAX_NUMBER
        case nodes.For(recursive=is_recursive):
            is_plain = not is_recursive
        case nodes.Add() | nodes.Concat():
            is_plain = _is_short(node)
        case nodes.Filter(name=name) if not _is_plain_filter(node):
            return f"the filter {name} in an unusual way"
        case nodes.Call():
            return _odd_call(node, macros)
        case _ if not isinstance(node, _NODES):
            return type(node).__name__
        case _:
            pass
    return "" if is_plain else f"{type(node).__name__} in an unusual way"


def _is_plain_filter(node: nodes.Filter) -> bool:
    """Whether the filter is usual, and its arguments make nothing large."""
    arguments = [*node.args, *(pair.value for pair in node.kwargs)]
    if node.name not in _FILTERS or node.dyn_args is not None or node.dyn_kwargs is not None:
        return False
    if node.name == "map" and node.args:
        mapped = node.args[0]
        return len(arguments) == 1 and isinstance(mapped, nodes.Const) and mapped.value in _MAPPED
    if node.name == "replace":
        return all(_is_small(argument, _MAX_REPLACEMENT) for argument in arguments)
    if node.name in ("join", "tojson", "indent"):
        return all(_is_small(argument, _MAX_PIECE) for argument in arguments)
    return True


def _odd_call(node: nodes.Call, macros: Collection[str]) -> str:
    """What is odd about a call."""
    called = node.node
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        return "a call in an unusual way"
    if isinstance(called, nodes.Name):
        if called.name == "strftime_now" and not all(map(_is_date, node.args)):
            return "dates in an unusual way"
        return "" if called.name in _FUNCTIONS or called.name in macros else called.name
    if not isinstance(called, nodes.Getattr) or called.attr not in _METHODS:
        return getattr(called, "attr", "a call in an unusual way")
    if called.attr == "replace" and not all(_is_small(a, _MAX_REPLACEMENT) for a in node.args):
        return "replace in an unusual way"
    return ""


def _is_small(node: nodes.Node, characters: int) -> bool:
    """Whether this argument is written here, and adds little for each item."""
    if isinstance(node, nodes.Tuple | nodes.List):
        return all(_is_small(item, characters) for item in node.items)
    if not isinstance(node, nodes.Const):
        return False
    if isinstance(node.value, str):
        return len(node.value) <= characters
    return node.value is None or 0 <= node.value <= _MAX_INDENT


def _is_date(node: nodes.Node) -> bool:
    """Whether this is the format of a date, without widths."""
    text = node.value if isinstance(node, nodes.Const) else None
    return isinstance(text, str) and len(text) <= _MAX_PIECE and not any(map(str.isdigit, text))


def _nested(template: nodes.Template, macros: Mapping[str, nodes.Macro]) -> str:
    """What puts a list that the template has made into another one: each could double the last."""
    made: set[str] = set()
    while True:
        names = {name for node in template.find_all(_BINDING) for name in _made(node, made, macros)}
        if names <= made:
            break
        made |= names
    return next(
        (
            f"{type(node).__name__} of what it has made"
            for node in template.find_all(_DISPLAYS)
            if not made.isdisjoint(_mentioned(node))
        ),
        "",
    )


def _made(node: nodes.Node, made: set[str], macros: Mapping[str, nodes.Macro]) -> Iterator[str]:
    """The names that get a list which the template makes of variables, or a part of one."""
    if isinstance(node, nodes.Assign | nodes.For):
        if _is_made(node.node if isinstance(node, nodes.Assign) else node.iter, made):
            yield from _mentioned(nodes.List([node.target]))
    elif isinstance(node, nodes.Keyword) and _is_made(node.value, made):
        yield node.key
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
        macro = macros.get(node.node.name)
        targets = [] if macro is None else macro.args
        for target, value in zip(targets, node.args, strict=False):
            if _is_made(value, made):
                yield target.name


def _is_made(node: nodes.Node, made: set[str]) -> bool:
    """Whether a value is, or has, a list or a dictionary made of variables."""
    inside = [node, *node.find_all(_DISPLAYS)]
    makes = any(isinstance(part, _DISPLAYS) and _mentioned(part) for part in inside)
    return makes or not made.isdisjoint(_mentioned(nodes.List([node])))


def _mentioned(node: nodes.Node) -> set[str]:
    """The names of variables and attributes within a node."""
    names = {name.name for name in node.find_all(nodes.Name)}
    names |= {part.attr for part in node.find_all(nodes.Getattr)}
    return names | {part.attr for part in node.find_all(nodes.NSRef)}


def _is_short(node: nodes.Node) -> bool:
    """Whether an expression joins few variables."""
    names = node.find_all(nodes.Name)
    return sum(1 for _ in zip(range(_MAX_VARIABLES + 1), names, strict=False)) <= _MAX_VARIABLES

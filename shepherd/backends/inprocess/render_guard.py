"""Bounds the time and the memory of a template that runs in this process.

A rendering has a budget (`Budget`). A template can only take much by loops within loops, by macros
that call macros, and by values that grow out of themselves. `guard` writes checks of the budget to
these places and no others. One loop over the messages, and what it writes, pays nothing.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from math import inf
from time import monotonic, thread_time
from typing import Any, cast

from jinja2 import TemplateError, nodes, pass_context
from jinja2.environment import Environment
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer

MAX_SECONDS = 5.0
"""Processor time; a template that looks back for each of 1,000 messages takes a second or two."""

_CHECK_SECONDS = 0.1
_GROWING = frozenset({"replace", "join", "indent", "e", "escape", "string"})
_ITEMS = 256
_ROOM_PER_ITEM = 16_384
"""Characters of room for each item of a list: any item may be the whole conversation."""
_TEXT_OVERHEAD = 32
"""Characters for which each text counts, however short it is."""


class ExhaustedError(TemplateError):
    """A template has taken more time or memory than any template needs."""


class Budget(threading.local):
    """What the rendering on this thread may still take."""

    def __init__(self) -> None:
        self.room = self.left = 1 << 20
        self.items = _ITEMS
        self.check_at = inf
        self._ends_at = inf

    def begin(self, room: int) -> None:
        """Begin a rendering whose texts have at most `room` characters."""
        self.room, self.left = room, 4 * room
        self.items = _ITEMS + room // _ROOM_PER_ITEM
        self.check_at = monotonic() + _CHECK_SECONDS
        self._ends_at = thread_time() + MAX_SECONDS

    def check(self) -> None:
        """Raise ExhaustedError if the time is over."""
        if thread_time() > self._ends_at:
            raise ExhaustedError(f"it takes more than {MAX_SECONDS:g} seconds")
        self.check_at = monotonic() + _CHECK_SECONDS

    def take(self, characters: int) -> None:
        """Raise ExhaustedError if a new text of this length is too much."""
        self.left -= characters
        if characters > self.room or self.left < 0:
            raise ExhaustedError("it writes too much text")


budget = Budget()


def joined(texts: Iterable[str]) -> str:
    """The text of a rendering, a macro or a block, which may be written of few long parts."""
    parts = list(texts)
    if sum(map(len, parts)) > budget.room:
        raise ExhaustedError("it writes too much text")
    return "".join(parts)


@pass_context
def counted(_context: Context, values: Iterable[Any]) -> Iterator[Any]:
    """The values of a loop, until the time is over; a list that grows meanwhile ends here."""
    for value in values[:] if isinstance(values, list) else values:
        if monotonic() > budget.check_at:
            budget.check()
        yield value


@pass_context
def entered(_context: Context, value: Any) -> Any:
    """A macro begins."""
    if monotonic() > budget.check_at:
        budget.check()
    return value


def grown(value: Any) -> Any:
    """A value that may be longer than what it was made of."""
    if isinstance(value, str) and len(value) > budget.room:
        raise ExhaustedError("it makes a text too long")
    if isinstance(value, list) and len(cast(list[Any], value)) > budget.items:
        raise ExhaustedError("it makes a list too long")
    return cast(Any, value)


def written(value: Any) -> Any:
    """A value that is written again and again."""
    budget.take(_TEXT_OVERHEAD + (len(value) if isinstance(value, str) else 0))
    return value


def install(environment: Environment) -> None:
    """Add what `guard` needs to an environment."""
    checks = {"counted": counted, "entered": entered, "grown": grown, "written": written}
    filters = cast(dict[str, Any], environment.filters)
    filters.update({f"guard_{name}": check for name, check in checks.items()})
    environment.concat = joined  # type: ignore[method-assign]


def guard(template: nodes.Template) -> nodes.Template:
    """The template with checks where it may take much."""
    macros = {macro.name for macro in template.find_all(nodes.Macro)}
    return cast(nodes.Template, _Guard(macros).visit(template))


class _Guard(NodeTransformer):
    """Puts the checks into a template."""

    def __init__(self, macros: set[str]) -> None:
        self._macros = macros
        self._item: set[str] | None = None
        """The names of the item of the innermost loop, or of a macro's arguments."""
        self._repeats = False
        """Whether this place may run much more often than there are messages."""
        self._visitors: dict[type[nodes.Node], Callable[[Any], nodes.Node]] = {
            nodes.For: self._for,
            nodes.Macro: self._macro,
            nodes.Output: self._output,
            nodes.Assign: self._assign,
            nodes.Keyword: self._keyword,
            nodes.Call: self._call,
            nodes.Filter: self._filter,
        }

    def get_visitor(self, node: nodes.Node) -> Any:
        """What visits a node of this type."""
        return self._visitors.get(type(node))

    def _for(self, node: nodes.For) -> nodes.Node:
        """A loop over a part of the item of the loop around it adds nothing to what runs."""
        outside = self._item, self._repeats
        is_counted = isinstance(node.iter, nodes.Call | nodes.Add) or (
            self._item is not None and _base(node.iter) not in self._item
        )
        node.iter = self.visit(node.iter)
        if is_counted:
            node.iter = _checked(node.iter, "guard_counted")
        self._item = {name.name for name in node.target.find_all(nodes.Name)}
        if isinstance(node.target, nodes.Name):
            self._item.add(node.target.name)
        self._repeats |= is_counted
        node.body = self._all(node.body)
        if node.test is not None:
            node.test = self.visit(node.test)
        self._item, self._repeats = outside
        node.else_ = self._all(node.else_)
        return node

    def _macro(self, node: nodes.Macro) -> nodes.Node:
        """A macro that calls others, or itself, may run any number of times."""
        outside = self._item, self._repeats
        self._item = {argument.name for argument in node.args}
        names = (call.node for call in node.find_all(nodes.Call))
        self._repeats = any(isinstance(n, nodes.Name) and n.name in self._macros for n in names)
        node.body = self._all(node.body)
        entry = _checked(nodes.Const(0, lineno=node.lineno), "guard_entered")
        node.body.insert(0, nodes.ExprStmt(entry, lineno=node.lineno))
        self._item, self._repeats = outside
        return node

    def _output(self, node: nodes.Output) -> nodes.Node:
        """A new text counts where it is written very often."""
        node.nodes = self._all(node.nodes)
        if self._repeats:
            node.nodes = [
                part if isinstance(part, nodes.TemplateData) else _checked(part, "guard_written")
                for part in node.nodes
            ]
        return node

    def _assign(self, node: nodes.Assign) -> nodes.Node:
        """What is joined of two variables may double with each round."""
        node.node = self._sized(node.node)
        return node

    def _keyword(self, node: nodes.Keyword) -> nodes.Node:
        """The same of an argument."""
        node.value = self._sized(node.value)
        return node

    def _call(self, node: nodes.Call) -> nodes.Node:
        """The same of the arguments of a macro, and of methods."""
        self.generic_visit(node)
        node.args = [self._sized(argument) for argument in node.args]
        is_growing = isinstance(node.node, nodes.Getattr) and node.node.attr in _GROWING
        return _checked(node, "guard_grown") if is_growing else node

    def _filter(self, node: nodes.Filter) -> nodes.Node:
        """What a filter makes longer."""
        self.generic_visit(node)
        return _checked(node, "guard_grown") if node.name in _GROWING else node

    def _sized(self, node: Any) -> Any:
        """The value, checked if it is joined of several variables."""
        joins = isinstance(node, nodes.Add | nodes.Concat) or any(
            True for _ in node.find_all((nodes.Add, nodes.Concat))
        )
        joins = joins and len(list(node.find_all(nodes.Name))) > 1
        node = self.visit(node)
        return _checked(node, "guard_grown") if joins else node

    def _all(self, several: list[Any]) -> list[Any]:
        """These nodes, with their checks."""
        return [self.visit(node) for node in several]


def _base(node: nodes.Node | None) -> str:
    """The variable whose part an expression is; "" if it is made of more."""
    while isinstance(node, nodes.Getattr | nodes.Getitem | nodes.Filter | nodes.Call):
        node = node.node
    return node.name if isinstance(node, nodes.Name) else ""


def _checked(node: nodes.Node, check: str) -> nodes.Filter:
    """The value of a node, after a check."""
    return nodes.Filter(node, check, [], [], None, None, lineno=node.lineno)

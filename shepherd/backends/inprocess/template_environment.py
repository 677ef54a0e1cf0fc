"""Jinja as chat templates expect it: compiles and renders one in this process."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from shepherd.backends.inprocess import render_guard
from shepherd.backends.inprocess.template_measure import MAX_PLAIN_SOURCE, oddity

RENDER_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""The errors that a template may raise for a conversation that it does not support."""

_WIDE = re.compile(r"%[^a-zA-Z%]*(?:\d{4}|\*)")


class OddTemplateError(Exception):
    """A template may take any time or memory, so that it must not be rendered here."""


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks text for training, as plain text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)  # the opening tag
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(SandboxedEnvironment):
    """The sandbox, without formats that widen a text."""

    intercepted_binops = frozenset({"%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The remainder, or a text in the format on the left."""
        if isinstance(left, str) and _WIDE.search(left):
            raise TemplateError("a format is too wide")
        return super().call_binop(context, operator, left, right)


@lru_cache(maxsize=8)
def compile_template(source: str, *, odd: bool = False) -> Template:
    """Compile a model's template; raises TemplateError if it is not Jinja.

    Raises OddTemplateError unless it is plain or may be `odd`. The last ones are kept: to compile
    one takes longer than to load a small model. Some templates change their lists; the lists are
    therefore copies.
    """
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", GenerationTag],
    )
    environment.filters["tojson"] = to_json
    environment.filters["from_json"] = json.loads
    render_guard.install(environment)
    if len(source) > MAX_PLAIN_SOURCE and not odd:
        raise OddTemplateError(f"{len(source)} characters")
    tree = environment.parse(source)
    reason = "" if odd else oddity(tree)
    if reason:  # Jinja computes with constants already while it compiles
        raise OddTemplateError(reason)
    return environment.from_string(render_guard.guard(tree), {"raise_exception": raise_exception})


def render_template(
    template: Template, variables: Mapping[str, Any], now: datetime, room: int
) -> str:
    """The text, of at most `room` characters; raises RENDER_ERRORS.

    Raises ExhaustedError, one of them, if it takes too much time or memory.
    """
    render_guard.budget.begin(room)
    return template.render(variables, strftime_now=now.strftime, raise_exception=raise_exception)


def to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001 - templates pass it by position too
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001 - templates pass it by position too
) -> str:
    """JSON as templates expect it: no HTML escapes, generators as lists."""
    text = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=list,
    )
    render_guard.budget.take(len(text))
    return text


def raise_exception(message: str) -> None:
    """The function that templates call to refuse a conversation."""
    raise TemplateError(message)

"""The Jinja sandbox in which chat templates run."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment

RENDER_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template may raise when it meets a conversation that it was not written for."""


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks text for training, as plain text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(source: str) -> Template:
    """Compile a model's template; raises TemplateError when it is not Jinja.

    A template may change the lists that it is given, as some do: they are copies.
    """
    environment = SandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", GenerationTag],
    )
    environment.filters["tojson"] = to_json
    return environment.from_string(source, {"raise_exception": raise_exception})


def to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001 - templates pass it by position too
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001 - templates pass it by position too
) -> str:
    """JSON as templates expect it: nothing escaped for HTML, generators as lists."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=list,
    )


def raise_exception(message: str) -> None:
    """What templates call when they refuse a conversation."""
    raise TemplateError(message)


def clock(now: datetime) -> Callable[[str], str]:
    """`strftime_now` for a conversation that began at `now`."""

    def strftime_now(pattern: str) -> str:
        return now.strftime(pattern)

    return strftime_now

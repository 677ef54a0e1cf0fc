"""Helpers for the arguments and options of commands."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, get_type_hints

from pydantic import ValidationError
from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from shepherd.validation import describe_problem

R = TypeVar("R")

_NOUNS = {"int_parsing": "a whole number", "float_parsing": "a number"}
_NEGATIVE_NUMBER = re.compile(r"-\.?\d.*|-(inf|infinity|nan)", re.IGNORECASE)


class ValueCommand(TyperCommand):
    """A command whose last argument is a value, which may be a negative number."""

    def parse_args(self, ctx: Any, args: Sequence[str]) -> list[str]:
        """Treat the first negative number, and everything after it, as arguments."""
        place = next((n for n, arg in enumerate(args) if _NEGATIVE_NUMBER.fullmatch(arg)), None)
        if place is None or "--" in args:
            return super().parse_args(ctx, list(args))
        return super().parse_args(ctx, [*args[:place], "--", *args[place:]])


class PlainErrors(TyperGroup):
    """The group of all commands; a wrong value is reported in the words of other problems."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the options of the group itself."""
        with _plain_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Parse the arguments of the command, and run it."""
        with _plain_errors():
            return super().invoke(ctx)


@contextmanager
def _plain_errors() -> Generator[None]:
    try:
        yield
    except BadParameter as error:
        if isinstance(error.__cause__, ValidationError):
            problem = error.__cause__.errors(include_url=False)[0]
            noun = _NOUNS.get(problem["type"], "")
            error.message = describe_problem(problem, "", expected=noun, show_value=True)
        raise


def with_option_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Replace each dataclass parameter of `command` by one option per field."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if dataclasses.is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def run(**values: Any) -> R:
        grouped = {
            name: group(
                **{field.name: values.pop(field.name) for field in dataclasses.fields(group)}
            )
            for name, group in groups.items()
        }
        return command(**values, **grouped)

    parameters = [
        flat
        for name, parameter in signature.parameters.items()
        for flat in (_parameters(groups[name]) if name in groups else [parameter])
    ]
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    flat_signature = signature.replace(parameters=keywords)
    setattr(run, "__signature__", flat_signature)  # noqa: B010 - the attribute is unknown to type checkers
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return run


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    """A parameter for each field of a dataclass, with its type and default."""
    types = get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        default: Any = field.default
        if default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=types[field.name],
        )

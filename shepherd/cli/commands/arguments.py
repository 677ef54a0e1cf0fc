"""Helpers for the arguments and options of commands."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from shepherd.config.settings import bare_type
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


@dataclass(frozen=True, slots=True)
class FieldOption:
    """An option that sets the field `key`: it has its type and, unless there is `help`, its text.

    `names` are as for Typer, and the field's own name without them. A list may be written with
    commas. One that is `off` switches the field off.
    """

    key: str
    help: str = ""
    names: str | None = None
    metavar: str | None = None
    is_path: bool = False
    off: bool = False

    @property
    def parameter(self) -> str:
        """The name of the parameter that Typer fills."""
        own = self.key.rpartition(".")[2]
        return (self.names or own).split("/")[0].lstrip("-").replace("-", "_")

    def annotation(self, field: FieldInfo, panel: str) -> Any:
        """The parameter's type for Typer."""
        kind: Any = Path if self.is_path else bare_type(field)
        option = typer.Option(
            *([self.names] if self.names else []),
            help=self.help or field.description,
            metavar=self.metavar,
            rich_help_panel=panel,
        )
        return Annotated[kind | None, option]


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """Options made from fields, in one panel of the help.

    In `Annotated`, it makes a field of an option group a mapping of the values that were set.
    """

    find: Callable[[str], FieldInfo | None]
    panel: str
    options: tuple[FieldOption, ...]

    def parameters(self) -> Iterator[inspect.Parameter]:
        """A parameter for each option; raises KeyError for a field that does not exist."""
        for option in self.options:
            field = self.find(option.key)
            if field is None:
                raise KeyError(option.key)
            annotation = option.annotation(field, self.panel)
            yield _parameter(option.parameter, annotation, None)

    def take(self, values: dict[str, Any]) -> dict[str, object]:
        """Move the options that were set out of Typer's `values`, by their keys."""
        taken = [(option, values.pop(option.parameter)) for option in self.options]
        return {o.key: not v if o.off else _plain(v) for o, v in taken if v is not None}


def _plain(value: Any) -> object:
    if isinstance(value, list):
        return ",".join(cast(list[str], value)).split(",")
    return str(value) if isinstance(value, Path) else value


def with_option_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Replace each dataclass parameter of `command` by one option per field, or FieldOptions."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if dataclasses.is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def run(**values: Any) -> R:
        grouped = {name: _filled(group, values) for name, group in groups.items()}
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


def _filled(group: Any, values: dict[str, Any]) -> Any:
    """The option group with its values, which are moved out of Typer's."""
    made = _made_of_fields(group)
    return group(
        **{
            field.name: made[field.name].take(values)
            if field.name in made
            else values.pop(field.name)
            for field in dataclasses.fields(group)
        }
    )


def _made_of_fields(group: Any) -> dict[str, FieldOptions]:
    hints = get_type_hints(group, include_extras=True).items()
    return {
        name: word
        for name, hint in hints
        for word in getattr(hint, "__metadata__", ())
        if isinstance(word, FieldOptions)
    }


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    """The parameters of a dataclass's fields, with their types and defaults."""
    types, made = get_type_hints(group, include_extras=True), _made_of_fields(group)
    for field in dataclasses.fields(group):
        if field.name in made:
            yield from made[field.name].parameters()
            continue
        default: Any = field.default
        if default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        yield _parameter(field.name, types[field.name], default)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)

"""Helpers for the arguments and options of commands."""

import inspect
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer
from msgspec import NODEFAULT, Struct, structs
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer import BadParameter
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from shepherd import errors, validation
from shepherd.config.section import field_texts
from shepherd.config.settings import bare_type

R = TypeVar("R")
T = TypeVar("T")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Keyring = Annotated[
    bool, typer.Option("--keyring", help="Keep secrets in the system's keyring, not in a file.")
]

_NOUNS = {"int_parsing": "a whole number", "float_parsing": "a number"}
_NEGATIVE_NUMBER = re.compile(r"-\.?\d.*|-(inf|infinity|nan)", re.IGNORECASE)


class ValueCommand(TyperCommand):
    """A command whose last argument is a value, which may be a negative number."""

    def parse_args(self, ctx: Any, args: Sequence[str]) -> list[str]:
        """Treat the first negative number, and everything after it, as arguments.

        The parser would take `-5` for an option.
        """
        for place, argument in enumerate(args):
            if _NEGATIVE_NUMBER.fullmatch(argument) and "--" not in args:
                args = [*args[:place], "--", *args[place:]]
                break
        return super().parse_args(ctx, list(args))


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
    """Gives a wrong value the words that a wrong setting in a file has."""
    try:
        yield
    except BadParameter as error:
        if isinstance(error.__cause__, ValidationError):  # the option is made from a field
            problem = error.__cause__.errors(include_url=False)[0]
            noun = _NOUNS.get(problem["type"], "")
            error.message = validation.describe_problem(problem, "", expected=noun, show_value=True)
        raise


def pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """The values of an option that is written `NAME=VALUE`, by name; raises UsageError."""
    values: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise errors.UsageError(f"{option} {name}: write {option} NAME=VALUE")
        values[name.strip()] = value
    return values


class FieldOption(Struct, frozen=True):
    """An option that sets the field `key`, of its type.

    Without `help` it has the field's description and default. `names` are as for Typer, with
    spaces between them, and the field's own name without them. A list may be written with commas.
    One that is `off` switches the field off.
    """

    key: str
    help: str = ""
    names: str = ""
    metavar: str | None = None
    is_path: bool = False
    off: bool = False

    @property
    def parameter(self) -> str:
        """The name of the parameter that Typer fills: `ask` for the names `--ask/--no-ask`."""
        _section, _dot, field_name = self.key.rpartition(".")
        first_name, *_ = re.split("[ /]", self.names or field_name)
        return first_name.lstrip("-").replace("-", "_")

    def annotation(self, field: FieldInfo) -> Any:
        """The parameter's type for Typer."""
        kind: Any = Path if self.is_path else bare_type(field)
        # an option with a help of its own gets its default from the settings files, and a switch
        # shows both of its names
        default = "" if self.help or isinstance(field.default, bool) else str(field.default)
        option = typer.Option(
            *self.names.split(),
            help=self.help or field.description,
            metavar=self.metavar,
            show_default=default or False,
        )
        return Annotated[kind | None, option]

    def setting(self, value: Any) -> object:
        """The field's value for what Typer has read."""
        if self.off:
            return not value
        if isinstance(value, list):  # `--allow a,b --allow c` has two texts and three values
            return ",".join(cast(list[str], value)).split(",")
        return str(value) if isinstance(value, Path) else value


class FieldOptions:
    """Options made from fields; in `Annotated`, it makes a field of an option group a mapping.

    The mapping holds the values that were set. An option that is a text is the field's name.
    """

    def __init__(
        self, find: Callable[[str], FieldInfo | None], *options: FieldOption | str
    ) -> None:
        self._find = find
        self._options = [FieldOption(o) if isinstance(o, str) else o for o in options]

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """The name and the type of each option; raises KeyError for an unknown field."""
        for option in self._options:
            field = self._find(option.key)
            if field is None:
                raise KeyError(option.key)
            yield option.parameter, option.annotation(field)

    def take(self, values: dict[str, Any]) -> dict[str, object]:
        """Move the options that were set out of Typer's `values`, by their keys."""
        settings: dict[str, object] = {}
        for option in self._options:
            value = values.pop(option.parameter)
            if value is not None:
                settings[option.key] = option.setting(value)
        return settings


def with_option_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Replace each Struct parameter of `command` by one option per field, or by FieldOptions.

    The docstring below a field is the option's help. A group with a `panel` has its options in the
    panel of the help that is called so.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if inspect.isclass(parameter.annotation) and issubclass(parameter.annotation, Struct)
    }

    @wraps(command)
    def run(**values: Any) -> R:
        grouped = {name: _filled(group, values) for name, group in groups.items()}
        return command(**values, **grouped)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += _parameters(groups[name]) if name in groups else [parameter]
    return with_parameters(run, parameters)


def with_parameters(
    run: Callable[..., R], parameters: Sequence[inspect.Parameter]
) -> Callable[..., R]:
    """A function as Typer sees it: with these parameters."""
    # options with defaults may stand before arguments without, which only keywords allow
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    setattr(run, "__signature__", inspect.Signature(keywords))  # noqa: B010 - the attribute is unknown to type checkers
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return run


def _filled(group: Any, values: dict[str, Any]) -> Any:
    """The option group with its values, which are moved out of Typer's."""
    arguments: dict[str, object] = {}
    for name, kind in get_type_hints(group, include_extras=True).items():
        options = _metadata(kind, FieldOptions)
        if options is not None:
            arguments[name] = options.take(values)
        elif name in values:
            arguments[name] = values.pop(name)
    return group(**arguments)


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    """The parameters of a Struct's fields, with their types and defaults."""
    kinds, texts = get_type_hints(group, include_extras=True), field_texts(group)
    for field in structs.fields(group):
        default: Any = field.default
        parameters = [(field.name, kinds[field.name])]
        options = _metadata(kinds[field.name], FieldOptions)
        if options is not None:  # one field for several options; None means that one is not set
            default, parameters = None, [*options.parameters()]
        elif default is NODEFAULT:
            default = inspect.Parameter.empty
        for name, kind in parameters:
            # a switch is off by default, and has no opposite
            names = [f"--{name.replace('_', '-')}"] if kind is bool else []
            option = _metadata(kind, OptionInfo) or typer.Option(*names)
            option.help = option.help or texts.get(name)
            option.rich_help_panel = getattr(group, "panel", None)
            yield inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[getattr(kind, "__origin__", kind), option],
            )


def _metadata(kind: Any, sought: type[T]) -> T | None:
    """The first object of a type in `Annotated[…]`."""
    return next((m for m in getattr(kind, "__metadata__", ()) if isinstance(m, sought)), None)

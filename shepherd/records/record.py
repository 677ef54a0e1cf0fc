"""The base of plain data whose fields say which values are valid."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    cast,
    dataclass_transform,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True, eq=False, kw_only=True)
class Field:
    """What a field accepts beyond its type; it stands in `Annotated`.

    `before` changes a value before its check, and `after` changes or refuses a valid one with a
    ValueError. `strip` removes white space around a text. `json_schema` replaces the schema that
    models see. `aliases` are other names of the field. `in_repr` and `in_data` tell whether the
    record's `repr` and its data hold the field.
    """

    description: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    strip: bool = False
    strict: bool | None = None
    before: "Callable[[Any], Any] | None" = None
    after: "Callable[[Any], Any] | None" = None
    json_schema: dict[str, Any] | None = None
    aliases: tuple[str, ...] = ()
    in_repr: bool = True
    in_data: bool = True


_ANY = Field()
_ADVICE = "describe it with one Field of shepherd.records.record"


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record: `kind` is its type without `Annotated`.

    `default` is MISSING if a value must be given.
    """

    name: str
    annotation: Any
    kind: Any
    rule: Field
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether the field has no default."""
        return self.default is dataclasses.MISSING


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record:
    """Base of plain data; a derived class is a frozen dataclass of its annotated fields.

    `Record(...)` takes the values as they are; `shepherd.records.check` makes a record of data that
    may be wrong. A field whose name begins with `_` is not part of such data. A default that is a
    list or a dictionary is copied for each record. A class with `is_base` has no fields.
    """

    validation: ClassVar[Mapping[str, Any]] = MappingProxyType({"extra": "forbid"})
    """Pydantic's options for the check."""

    def __init_subclass__(cls, *, is_base: bool = False) -> None:
        if is_base:
            return
        for name, default in [*vars(cls).items()]:
            if type(default).__module__.startswith("pydantic"):
                raise TypeError(f"{cls.__name__}.{name}: {_ADVICE}")
            if isinstance(default, list | dict) and name in cls.__annotations__:
                factory: Any = cast(Any, default).copy
                setattr(cls, name, dataclasses.field(default_factory=factory))
        dataclass(frozen=True, kw_only=True)(cls)
        cls.__repr__ = Record.__repr__

    def __repr__(self) -> str:
        names = (name for name, field in fields_of(type(self)).items() if field.rule.in_repr)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    @classmethod
    def prepared(cls, data: object) -> object:
        """The data to check, if a class accepts more than its fields tell."""
        return data

    def check(self) -> None:
        """Raise ValueError if the values don't fit each other."""


def rule_of(annotation: object) -> Field:
    """The Field of an annotation; one that accepts anything if there is none.

    Raises TypeError for other words, because they would not be checked.
    """
    metadata: tuple[object, ...] = getattr(annotation, "__metadata__", (_ANY,))
    rule = metadata[0]
    if len(metadata) > 1 or not isinstance(rule, Field):
        raise TypeError(_ADVICE)
    return rule


def kind_of(annotation: Any) -> Any:
    """The type of an annotation, without `Annotated`."""
    return annotation.__origin__ if get_origin(annotation) is Annotated else annotation


def fields_of(kind: type[Record]) -> Mapping[str, RecordField]:
    """The fields of a record that data can set, in order."""
    known: dict[str, RecordField] | None = kind.__dict__.get("_fields")
    if known is None:
        entries = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        types = get_type_hints(kind, include_extras=True)
        known = {
            e.name: _field(kind, e, types[e.name]) for e in entries if not e.name.startswith("_")
        }
        kind._fields = known  # pyright: ignore[reportAttributeAccessIssue] - a cache of the class
    return known


def _field(kind: type, entry: "dataclasses.Field[Any]", annotation: Any) -> RecordField:
    default: Any = entry.default
    if entry.default_factory is not dataclasses.MISSING:
        default = entry.default_factory()
    try:
        rule = rule_of(annotation)
    except TypeError as error:
        raise TypeError(f"{kind.__name__}.{entry.name}: {error}") from error
    return RecordField(entry.name, annotation, kind_of(annotation), rule, default)

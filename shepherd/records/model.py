"""The pydantic model of a record, which checks data and explains what is wrong with it."""

from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import pydantic
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    create_model,
    model_validator,
)

from shepherd.records.record import Field, Record, RecordField, fields_of

R = TypeVar("R", bound=Record)
_LIMITS = ("ge", "gt", "le", "min_length", "max_length", "pattern", "strict")


@cache
def model_of(kind: type[Record]) -> type[BaseModel]:
    """The model with the fields and the rules of a record; it is made once."""

    def prepare(_cls: type[BaseModel], data: object) -> object:
        return kind.prepared(data)

    def check(self: BaseModel) -> BaseModel:
        record_of(kind, self).check()
        return self

    validators = {
        "prepare": model_validator(mode="before")(cast(Any, classmethod(prepare))),
        "check_record": model_validator(mode="after")(check),
    }
    fields = {name: _definition(field) for name, field in fields_of(kind).items()}
    make: Any = create_model
    options = {"protected_namespaces": (), "populate_by_name": True, **kind.validation}
    return make(
        kind.__name__, __config__=options, __doc__=kind.__doc__, __validators__=validators, **fields
    )


def record_of(kind: type[R], model: BaseModel) -> R:
    """The record with the values of its model."""
    return kind(**{name: getattr(model, name) for name in fields_of(kind)})


def _definition(field: RecordField) -> tuple[Any, Any]:
    rule = field.rule
    options: dict[str, Any] = {}
    if rule.description:
        options["description"] = rule.description
    if rule.aliases:
        options["validation_alias"] = AliasChoices(field.name, *rule.aliases)
    default: Any = ... if field.is_required else field.default
    return _translated(field.annotation), pydantic.Field(default, **options)


def _translated(annotation: Any) -> Any:
    """The annotation with pydantic's own words in place of each Field and each record."""
    origin: Any = get_origin(annotation)
    if origin is Annotated:
        metadata = [word for item in annotation.__metadata__ for word in _words(item)]
        inner = _translated(annotation.__origin__)
        return Annotated[(inner, *metadata)] if metadata else inner
    if origin is None:
        is_record = isinstance(annotation, type) and issubclass(annotation, Record)
        validator = PlainValidator(partial(_nested, annotation))
        return Annotated[Any, validator] if is_record else cast(Any, annotation)
    if origin is Literal:
        return annotation
    arguments = tuple(map(_translated, get_args(annotation)))
    return Union[arguments] if origin in (Union, UnionType) else origin[arguments]  # noqa: UP007


def _nested(kind: type[Record], data: object) -> Record:
    """A record within other data; its model is made at the first value."""
    return data if isinstance(data, kind) else record_of(kind, model_of(kind).model_validate(data))


def _words(item: object) -> list[Any]:
    if not isinstance(item, Field):
        return [item]
    limits = {name: getattr(item, name) for name in _LIMITS}
    limits = {name: value for name, value in limits.items() if value is not None}
    words: list[Any] = [pydantic.Field(**limits)] if limits else []
    if item.strip:
        words.insert(0, StringConstraints(strip_whitespace=True))
    words += [BeforeValidator(item.before)] if item.before else []
    words += [AfterValidator(item.after)] if item.after else []
    words += [WithJsonSchema(item.json_schema)] if item.json_schema else []
    return words

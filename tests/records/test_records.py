"""Records: plain data, and the same check at first sight as by pydantic."""

import math
from dataclasses import FrozenInstanceError, is_dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.agents.ask import AskArguments
from shepherd.agents.task import TaskAtArguments
from shepherd.config.modeldb import ModelEntry
from shepherd.config.providers.provider import Provider
from shepherd.config.settings import Config
from shepherd.config.tools import PermissionRule
from shepherd.mcp.settings.definition import ServerDefinition
from shepherd.records.check import InvalidRecordError, as_data, checked
from shepherd.records.model import model_of, record_of
from shepherd.records.plain import NotPlainError, plain_record
from shepherd.records.record import Field, Record, RecordField, fields_of, kind_of
from shepherd.tools.builtin import default_registry
from shepherd.tools.files.edit import EditArguments
from shepherd.tools.files.read import ReadArguments
from shepherd.tools.plan import PlanArguments
from shepherd.tools.shell.execute import ExecuteArguments
from tests.examples import examples

SECTIONS: list[type[Record]] = [field.kind for field in fields_of(Config).values()]
TOOLS: list[type[Record]] = [tool.arguments for tool in default_registry()]
OTHERS: list[type[Record]] = [
    *(PermissionRule, Provider, ModelEntry, ServerDefinition),
    *(AskArguments, TaskAtArguments, PlanArguments),
]
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, 0, -1, 1.5, math.nan, math.inf, 2**70, "", " x ", "\ud800", "a\0b"),
        *([], [1], {}, {"a": 1}, ["a", None], "1", "true", b"x", ("a",)),
    ]
)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values that a field of this type may have."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (list, tuple):
        return st.lists(values_of(kind_of(arguments[0])), max_size=3)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=2)
    if arguments:
        return st.one_of([values_of(kind_of(one)) for one in arguments])
    if issubclass(kind, Record):
        return data_of(kind)
    if issubclass(kind, StrEnum):
        return st.sampled_from([*kind, *(word.value for word in kind)])
    plain: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(-2, 2000),
        float: st.floats(-2, 200),
    }
    return plain.get(kind, st.none() if kind is type(None) else st.text(max_size=6))


def _value(field: RecordField) -> st.SearchStrategy[Any]:
    rule = field.rule
    limits = [st.just(limit) for limit in (rule.ge, rule.le, rule.gt) if limit is not None]
    return st.one_of(values_of(field.kind), values_of(field.kind), *limits, ODD)


def data_of(kind: type[Record]) -> st.SearchStrategy[dict[str, Any]]:
    """Data for a record, which may be valid."""
    fields = fields_of(kind)
    required = {name: _value(field) for name, field in fields.items() if field.is_required}
    optional = {name: _value(field) for name, field in fields.items() if not field.is_required}
    some = st.sets(st.sampled_from([*optional]), max_size=3) if optional else st.just(set[str]())
    return some.flatmap(
        lambda names: st.fixed_dictionaries(required | {name: optional[name] for name in names})
    )


@pytest.mark.hypothesis
@settings(max_examples=examples(2000))
@given(st.data())
def test_what_is_valid_at_first_sight_is_valid_for_pydantic_and_the_same(data: Any) -> None:
    kind = data.draw(st.sampled_from([*SECTIONS, *TOOLS, *OTHERS]))
    values = data.draw(data_of(kind))
    try:
        record = plain_record(kind, values)
    except NotPlainError:
        return
    by_pydantic = record_of(kind, model_of(kind).model_validate(values))
    assert by_pydantic == record
    assert repr(by_pydantic) == repr(record)  # 1 and 1.0, a text and a word of an enumeration


USUAL: list[tuple[type[Record], dict[str, Any]]] = [
    (Config, {}),
    (Config, {"sampling": {"temperature": 0.0, "top_p": 1, "stop": ["END"]}}),
    (Config, {"model": {"name": "pup", "thinking": True}, "tools": {"sandbox": "required"}}),
    (Config, {"llamacpp": {"context_size": 4096, "cache_type_k": "q8_0", "lora": ["a.gguf"]}}),
    (Config, {"hooks": {"turn_end": [{"command": "true", "timeout": 5}]}}),
    (Provider, {"name": "work", "type": "openai", "base_url": "http://127.0.0.1:1/v1"}),
    (ServerDefinition, {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}}),
    (ReadArguments, {"path": "a.py", "offset": 3}),
    (ExecuteArguments, {"command": "ls", "timeout": 5}),
    (EditArguments, {"path": "a", "old_string": "b", "new_string": ""}),
    (AskArguments, {"question": "Why?"}),
]


@pytest.mark.parametrize(("kind", "data"), USUAL)
def test_usual_data_needs_no_pydantic(kind: type[Record], data: dict[str, Any]) -> None:
    """The property above would hold for a check that accepts nothing."""
    assert plain_record(kind, data) == checked(kind, data)


class Colour(StrEnum):
    RED = "red"


class Part(Record):
    """A part."""

    name: str
    size: Annotated[int, Field(ge=1, le=9, description="Its size.")] = 1


class Whole(Record):
    """A whole of parts."""

    parts: Annotated[list[Part], Field(max_length=2)] = []
    table: dict[str, str] = {}
    colour: Annotated[Colour, Field(strict=False)] = Colour.RED
    secret: Annotated[str, Field(in_repr=False, aliases=("key",))] = ""
    own: Annotated[str, Field(in_data=False)] = ""
    _hidden: int = 0

    def check(self) -> None:
        if self.secret == self.own != "":
            raise ValueError("secret must not be own")


def test_a_record_is_a_frozen_dataclass() -> None:
    part = Part(name="a")
    assert (part, hash(part)) == (Part(name="a", size=1), hash(Part(name="a")))
    assert replace(part, size=3) == Part(name="a", size=3)
    assert is_dataclass(Part)
    with pytest.raises(FrozenInstanceError):
        part.size = 4  # type: ignore[misc]


def test_records_do_not_share_a_default() -> None:
    Whole().parts.append(Part(name="a"))
    Whole().table["a"] = "b"
    assert (Whole().parts, Whole().table) == ([], {})
    assert checked(Whole, {}).parts is not checked(Whole, {}).parts


def test_what_is_secret_is_not_in_the_text_of_a_record() -> None:
    assert "word" not in repr(Whole(secret="word"))
    assert "own='x'" in repr(Whole(own="x"))


def test_data_has_what_is_stored_and_becomes_the_same_record() -> None:
    whole = Whole(parts=[Part(name="a"), Part(name="b", size=2)], table={"x": "y"})
    assert as_data(whole, changes_only=True) == {
        "parts": [{"name": "a"}, {"name": "b", "size": 2}],
        "table": {"x": "y"},
    }
    assert "own" not in as_data(whole)
    assert checked(Whole, as_data(whole)) == whole
    as_data(whole)["table"]["z"] = ""
    assert whole.table == {"x": "y"}


@pytest.mark.parametrize(
    ("data", "place", "kind"),
    [
        ({"parts": [{"name": "a"}, {"size": 3}]}, ("parts", 1, "name"), "missing"),
        ({"parts": [{"name": "a", "size": 10}]}, ("parts", 0, "size"), "less_than_equal"),
        ({"parts": [{"name": "a", "sizes": 1}]}, ("parts", 0, "sizes"), "extra_forbidden"),
        ({"parts": [{"name": "a"}] * 3}, ("parts",), "too_long"),
        ({"colour": "blue"}, ("colour",), "enum"),
        ({"_hidden": 1}, ("_hidden",), "extra_forbidden"),
        ({"secret": "x", "own": "x"}, (), "value_error"),
        ([], (), "model_type"),
    ],
)
def test_problems_have_their_places(data: Any, place: tuple[Any, ...], kind: str) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        checked(Whole, data)
    assert [(p["loc"], p["type"]) for p in caught.value.problems] == [(place, kind)]


class Nested(Record):
    """Parts in all places."""

    pair: tuple[Part, ...] = ()
    named: dict[str, Part] = {}
    one: Part | None = None
    words: list[Annotated[str, Field(min_length=2)]] | None = None


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"pair": [{"name": "a", "size": 0}]}, ("pair", 0, "size")),
        ({"named": {"x": {"name": "a", "size": 0}}}, ("named", "x", "size")),
        ({"one": {"name": "a", "size": 0}}, ("one", "size")),
        ({"words": ["a"]}, ("words", 0)),
    ],
)
def test_a_record_in_any_place_is_checked(data: Any, place: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        checked(Nested, data)
    assert [problem["loc"] for problem in caught.value.problems] == [place]
    valid = {"pair": [{"name": "a"}], "named": {"x": {"name": "b"}}, "one": {"name": "c"}}
    nested = Nested(pair=(Part(name="a"),), named={"x": Part(name="b")}, one=Part(name="c"))
    assert plain_record(Nested, valid) == nested
    assert record_of(Nested, model_of(Nested).model_validate(valid)) == nested


def test_an_alias_sets_its_field() -> None:
    assert checked(Whole, {"key": "x"}).secret == "x"


def test_the_words_of_pydantic_are_refused() -> None:
    """The check at first sight would not know them."""

    class Described(Record):
        size: Annotated[int, pydantic.Field(ge=1)]

    with pytest.raises(TypeError, match=r"Described\.size"):
        checked(Described, {"size": 0})
    with pytest.raises(TypeError, match=r"Defaulted\.size"):

        class Defaulted(Record):  # pyright: ignore[reportUnusedClass]
            size: int = pydantic.Field(default=1, ge=1)

    with pytest.raises(TypeError, match=r"Decorated\._check"):

        class Decorated(Record):  # pyright: ignore[reportUnusedClass]
            size: int

            @pydantic.field_validator("size")
            @classmethod
            def _check(cls, size: int) -> int:
                return size

"""Shepherd's dataclasses behave as those of the standard library, and make methods when used."""

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.dataclass import dataclass

T = TypeVar("T")
Decorator = Callable[..., Callable[[type], type]]

OPTIONS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "kw_only": True},
    {"slots": True, "eq": False},
    {"frozen": True, "slots": True, "eq": False},
]


def plain() -> type:
    class Sample:
        """A sample."""

        kind: ClassVar[str] = "sample"
        number: int
        text: str = "a"
        names: list[str] = dataclasses.field(default_factory=list[str])
        quiet: int = dataclasses.field(default=0, compare=False, repr=False)
        hashed: int = dataclasses.field(default=0, hash=False)

    return Sample


def computed() -> type:
    class Sample:
        first: int
        second: int = dataclasses.field(default=2, kw_only=True)
        total: int = dataclasses.field(init=False)
        made: dict[str, int] = dataclasses.field(init=False, default_factory=dict[str, int])
        fixed: int = dataclasses.field(init=False, default=5)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.first + self.second)

    return Sample


def with_methods() -> type:
    class Sample:  # noqa: PLW1641 - Python makes it unhashable, and so it has to stay
        first: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "sample"

    return Sample


def with_hash() -> type:
    class Sample:
        first: int

        def __hash__(self) -> int:
            return 7

    return Sample


def with_init() -> type:
    class Sample:
        first: int

        def __init__(self, first: int) -> None:
            object.__setattr__(self, "first", 2 * first)

    return Sample


def generic() -> type:
    class Sample(Generic[T]):
        first: T

    return Sample


def empty() -> type:
    class Sample:
        """No fields."""

    return Sample


CLASSES = [plain, computed, with_methods, with_hash, with_init, generic, empty]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((2,), {}),
    ((), {"number": 1}),
    ((), {"first": 1}),
    ((1,), {"second": 3}),
    ((1, "b", ["x"]), {}),
    ((1, "b"), {"quiet": 4}),
    ((1,), {"hashed": 4}),
    ((), {"number": 1, "names": ["y"]}),
    ((1,), {"unknown": 2}),
]


def result(work: Callable[[], object]) -> object:
    """What `work` gives, or the type of its error."""
    try:
        return work()
    except (TypeError, AttributeError) as error:
        return type(error)


def is_refused(change: Callable[[], object]) -> bool:
    """Whether a change fails; Python 3.11 raises a TypeError for names that are no fields."""
    return result(change) is not None


def instances(cls: type) -> list[Any]:
    return [result(lambda a=a, k=k: cls(*a, **k)) for a, k in CALLS]


def behaviour(cls: Any) -> list[object]:
    """What can be seen of a class and its instances."""
    made = [item for item in instances(cls) if isinstance(item, cls)]
    seen: list[object] = [
        [isinstance(item, cls) or item for item in instances(cls)],
        [str(parameter.name) for parameter in inspect.signature(cls).parameters.values()],
        cls.__match_args__,
        cls.__init__.__qualname__,
        [field.name for field in dataclasses.fields(cls)],
        [result(lambda a=a, b=b: a == b) for a in made for b in (*made, 1)],
    ]
    for item in made:
        seen += [
            result(lambda item=item: repr(item) if "object at" not in repr(item) else ""),
            result(lambda item=item: hash(item) if cls.__hash__ is not object.__hash__ else ""),
            result(lambda item=item: dataclasses.asdict(item)),
            is_refused(lambda item=item: setattr(item, "first", 3)),
            is_refused(lambda item=item: delattr(item, "first")),
            is_refused(lambda item=item: setattr(item, "other", 3)),
            result(lambda item=item: dict(getattr(copy.copy(item), "__dict__", {}))),
            result(lambda item=item: dataclasses.asdict(copy.deepcopy(item))),
        ]
    return seen


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("make", CLASSES)
def test_behaves_as_in_the_standard_library(
    make: Callable[[], type], options: dict[str, bool]
) -> None:
    def decorated(decorator: Decorator) -> type:
        return decorator(**options)(make())

    ours, theirs = decorated(dataclass), decorated(dataclasses.dataclass)

    assert behaviour(ours) == behaviour(theirs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("derived_options", OPTIONS, ids=str)
def test_can_be_derived_as_in_the_standard_library(
    options: dict[str, bool], derived_options: dict[str, bool]
) -> None:
    def derived(decorator: Decorator, outer: Decorator) -> object:
        base: Any = decorator(**options)(plain())

        class Derived(base):
            second: int = 3

        return result(lambda: behaviour(outer(**derived_options)(Derived)))

    expected = derived(dataclasses.dataclass, dataclasses.dataclass)

    assert derived(dataclass, dataclass) == expected
    assert derived(dataclass, dataclasses.dataclass) == expected


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0
    names: tuple[str, ...] = dataclasses.field(default=())


@given(st.integers(), st.integers())
def test_instances_can_be_copied_and_pickled(x: int, y: int) -> None:
    point = Point(x, y)

    assert pickle.loads(pickle.dumps(point)) == point == copy.copy(point)
    assert dataclasses.replace(point, x=y) == Point(y, y)
    assert len({point, Point(x, y)}) == 1
    match point:
        case Point(first, second):
            assert (first, second) == (x, y)


def test_a_frozen_dataclass_defines_no_setter() -> None:
    class Sample:
        first: int

        def __setattr__(self, name: str, value: object) -> None: ...

    for decorator in (dataclass, dataclasses.dataclass):
        with pytest.raises(TypeError):
            decorator(frozen=True)(Sample)


def test_a_method_is_made_when_it_is_first_used() -> None:
    @dataclass(slots=True)
    class Sample:
        first: int

    assert not inspect.isfunction(vars(Sample)["__init__"])
    Sample(1)
    assert inspect.isfunction(vars(Sample)["__init__"])
    assert not inspect.isfunction(vars(Sample)["__eq__"])


def test_a_class_that_is_used_often_has_a_compiled_init_of_the_same_meaning() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Sample:
        first: int
        second: list[int] = dataclasses.field(default_factory=list[int])
        third: int = dataclasses.field(default=3, init=False)

    before = Sample(first=0)
    generic = vars(Sample)["__init__"]
    later = [Sample(first=0, second=[]) for _ in range(100)]

    assert generic is not vars(Sample)["__init__"]
    assert all(item == before and item.second is not before.second for item in later)


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, 2), {}), ((1,), {"x": 1}), ((), {"z": 1})]
)
def test_wrong_arguments_are_named(values: tuple[int, ...], named: dict[str, int]) -> None:
    @dataclass()
    class Sample:
        x: int

    with pytest.raises(TypeError, match=r"Sample\.__init__\(\) (missing|takes|got)"):
        Sample(*values, **named)


def test_a_repr_ends_where_an_object_holds_itself() -> None:
    @dataclass(slots=True)
    class Sample:
        items: list[object] = dataclasses.field(default_factory=list[object])

    sample = Sample()
    sample.items.append(sample)

    assert repr(sample).endswith("Sample(items=[...])")


def test_the_annotations_of_init_are_those_of_the_fields() -> None:
    assert inspect.signature(Point).parameters["x"].annotation is int
    assert sys.getsizeof(Point(1)) == sys.getsizeof(dataclasses.replace(Point(1), y=2))


@pytest.mark.parametrize("name", ["x", "y", "names", "other"])
def test_a_frozen_instance_says_what_is_refused(name: str) -> None:
    point = Point(1)

    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(point, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
        delattr(point, name)

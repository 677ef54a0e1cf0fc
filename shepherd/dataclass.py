"""`dataclass` as in the standard library, with methods that are made when they are first used.

The standard library compiles up to six methods for each class, which takes most of the time that
it takes to import a module of plain data. Most of them are never called in a run.
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import inspect
    from dataclasses import dataclass

__all__ = ["dataclass"]

_COMPILED_AFTER = 50
"""Calls of a class after which its `__init__` is compiled."""

T = TypeVar("T")
Method = Callable[..., Any]


def _dataclass(
    *, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False
) -> Callable[[type[T]], type[T]]:
    """The decorator with the options that Shepherd uses."""

    def decorate(cls: type[T]) -> type[T]:
        own = dict(vars(cls))
        cls.__doc__ = cls.__doc__ or cls.__name__  # dataclasses would describe `__init__`
        # it checks that a frozen class derives from frozen ones, and makes their methods
        inherits = frozen and any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
        bare = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, kw_only=kw_only, frozen=inherits
        )
        made = bare(cls)
        for name, make in _makers(own, frozen=frozen, slots=slots, eq=eq).items():
            setattr(made, name, make and _Lazy(name, made, make))
        if "__init__" not in own:
            setattr(made, "__signature__", _Signature(made))  # noqa: B010 - type checkers don't know it
        _tell_parameters(made, frozen=frozen, eq=eq)
        return made

    return decorate


if not TYPE_CHECKING:
    dataclass = _dataclass


class _Lazy:
    """A method that is made when it is first looked up, and then replaces this object."""

    __slots__ = ("_make", "_name", "_owner")

    def __init__(self, name: str, owner: type, make: Callable[[Any], Method]) -> None:
        self._name = name
        self._owner = owner
        self._make = make

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self._make(self._owner)
        method.__name__ = self._name
        method.__qualname__ = f"{self._owner.__qualname__}.{self._name}"
        method.__module__ = self._owner.__module__
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


def _makers(
    own: dict[str, Any], *, frozen: bool, slots: bool, eq: bool
) -> dict[str, Callable[[Any], Method] | None]:
    """The functions that make the methods; a method of the class itself is kept."""
    makers: dict[str, Callable[[Any], Method] | None] = {"__repr__": _repr}
    makers["__init__"] = _frozen_init if frozen else _init
    if eq:
        makers["__eq__"] = _eq
        makers["__hash__"] = _hash if frozen else None
    if frozen and slots:
        makers |= {"__getstate__": _getstate, "__setstate__": _setstate}
    if "__eq__" in own and own.get("__hash__") is None:
        own.pop("__hash__", None)  # Python has set it because of `__eq__`
    kept = {name: maker for name, maker in makers.items() if name not in own}
    if frozen:
        if "__setattr__" in own or "__delattr__" in own:
            raise TypeError("a frozen dataclass can't define __setattr__ or __delattr__")
        kept |= {"__setattr__": _setattr, "__delattr__": _delattr}
    return kept


def _tell_parameters(cls: Any, *, frozen: bool, eq: bool) -> None:
    """Note how the class behaves, for dataclasses that are derived from it."""
    parameters = cls.__dataclass_params__
    parameters.init = parameters.repr = True
    parameters.frozen, parameters.eq = frozen, eq


def _init(cls: Any) -> Method:
    return _first_init(cls, setattr, "self.{name} = {value}")


def _frozen_init(cls: Any) -> Method:
    return _first_init(cls, object.__setattr__, "_set(self, '{name}', {value})")


def _first_init(cls: Any, assign: Callable[[Any, str, Any], None], assignment: str) -> Method:
    """`__init__` that reads the fields at each call, until the class is used often.

    A compilation takes as long as fifty calls save. It also names the arguments that are wrong.
    """
    fields = [f for f in dataclasses.fields(cls) if f.init or _is_set(f, cls)]
    places = [field.name for field in fields if field.init and not field.kw_only]
    has_more = hasattr(cls, "__post_init__")
    calls = 0

    def method(self: Any, /, *values: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        arguments = {**dict(zip(places, values, strict=False)), **named}
        is_clear = len(values) <= len(places) and len(arguments) == len(values) + len(named)
        made = _made_values(fields, arguments) if is_clear and calls < _COMPILED_AFTER else None
        if made is None:
            compiled = _compiled_init(cls, assignment)
            cls.__init__ = compiled
            compiled(self, *values, **named)
            return
        for name, value in made.items():
            assign(self, name, value)
        if has_more:
            self.__post_init__()

    method.__annotations__ = _init_annotations(fields)
    return method


def _made_values(
    fields: list[dataclasses.Field[Any]], arguments: dict[str, Any]
) -> dict[str, Any] | None:
    """The value of each field; None if an argument is missing or unknown."""
    made: dict[str, Any] = {}
    used = 0
    for field in fields:
        if field.init and field.name in arguments:
            made[field.name] = arguments[field.name]
            used += 1
        elif field.default_factory is not dataclasses.MISSING:
            made[field.name] = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            made[field.name] = field.default
        else:
            return None
    return made if used == len(arguments) else None


def _init_annotations(fields: list[dataclasses.Field[Any]]) -> dict[str, Any]:
    return {field.name: field.type for field in fields if field.init} | {"return": None}


class _Signature:
    """The class's `__signature__`; a class that is derived from it has its own."""

    def __init__(self, owner: type) -> None:
        self._owner = owner

    def __get__(self, _instance: object, owner: type | None = None) -> "inspect.Signature":
        import inspect

        if owner is not self._owner:
            raise AttributeError("__signature__")
        whole = inspect.signature(_compiled_init(self._owner, "{name}, {value}"))
        return whole.replace(parameters=[*whole.parameters.values()][1:])


def _compiled_init(cls: Any, assignment: str) -> Method:
    """`__init__` with the fields as parameters; `assignment` is the statement that sets one."""
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"_set": object.__setattr__, "_unset": _UNSET}
    body = [
        assignment.format(name=field.name, value=_value(field, names))
        for field in fields
        if field.init or _is_set(field, cls)
    ]
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = [field for field in fields if field.init]
    parameters = ["self", *(_parameter(field) for field in arguments if not field.kw_only)]
    keywords = [_parameter(field) for field in arguments if field.kw_only]
    if keywords:
        parameters += ["*", *keywords]
    code = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body or ["pass"])
    made: dict[str, Any] = {}
    exec(code, names, made)  # only names of fields, as in dataclasses
    init = made["__init__"]
    init.__annotations__ = _init_annotations(arguments)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    return init


class _Unset:
    """The default of a parameter whose field has a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_UNSET = _Unset()


def _is_set(field: dataclasses.Field[Any], cls: type) -> bool:
    """Whether `__init__` sets a field that is not its parameter; the class may hold a default."""
    if field.default_factory is not dataclasses.MISSING:
        return True
    return field.default is not dataclasses.MISSING and "__slots__" in vars(cls)


def _parameter(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name}=_unset"
    return field.name if field.default is dataclasses.MISSING else f"{field.name}=_of_{field.name}"


def _value(field: dataclasses.Field[Any], names: dict[str, Any]) -> str:
    """The expression of the value that `__init__` sets; adds the default to `names`."""
    default = f"_of_{field.name}"
    if field.default_factory is not dataclasses.MISSING:
        names[default] = field.default_factory
        made = f"{default}()"
        return f"{made} if {field.name} is _unset else {field.name}" if field.init else made
    if field.default is not dataclasses.MISSING:
        names[default] = field.default
    return field.name if field.init else default


def _repr(cls: Any) -> Method:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    @recursive_repr()
    def method(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return method


def _eq(cls: Any) -> Method:
    values = _getter(field.name for field in dataclasses.fields(cls) if field.compare)

    def method(self: object, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return method


def _hash(cls: Any) -> Method:
    values = _getter(
        field.name
        for field in dataclasses.fields(cls)
        if (field.compare if field.hash is None else field.hash)
    )

    def method(self: object) -> int:
        return hash(values(self))

    return method


def _getter(names: Any) -> Callable[[Any], tuple[Any, ...]]:
    """The function that gets the values of attributes as a tuple."""
    attributes = tuple(names)
    if len(attributes) > 1:
        return attrgetter(*attributes)
    return lambda self: tuple(getattr(self, name) for name in attributes)


def _setattr(cls: type[Any]) -> Method:
    names = {field.name for field in dataclasses.fields(cls)}

    def method(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    return method


def _delattr(cls: type[Any]) -> Method:
    names = {field.name for field in dataclasses.fields(cls)}

    def method(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return method


def _getstate(_cls: Any) -> Method:
    def method(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    return method


def _setstate(_cls: Any) -> Method:
    def method(self: Any, state: list[Any]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)

    return method

"""Requests that are nearly right: hypothesis changes one place of an example."""

import copy
from collections.abc import Iterator
from typing import Any, TypeAlias, cast

from hypothesis import strategies as st

Path: TypeAlias = tuple[str | int, ...]

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["", "0", "-1", "AAAA", "{}", "data:image/png;base64,AAAA", "application/json"]
    ),
)
JSON = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["type", "text", "name", "a", ""]), inner, max_size=3),
    ),
    max_leaves=6,
)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all values in an example."""
    yield path
    if isinstance(value, dict):
        for key, item in cast(dict[str, Any], value).items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast(list[Any], value)):
            yield from places(item, (*path, index))


@st.composite
def mutated(draw: st.DrawFn, example: dict[str, Any]) -> dict[str, Any]:
    """The example with another value in one or two places, or without them."""
    body = copy.deepcopy(example)
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([p for p in places(body) if p] or [("text",)]))
        target: Any = body
        for step in path[:-1]:
            target = target[step]
        if draw(st.integers(0, 4)) == 0 and path[-1] in (
            target if isinstance(target, dict) else ()
        ):
            del target[path[-1]]
        else:
            target[path[-1]] = draw(JSON)
    return body

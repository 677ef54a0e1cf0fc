"""JSON that is nested too deeply is no call."""

import pytest

from shepherd.backends.output.repair import MAX_DEPTH, loads, read_json, repair_json


@pytest.mark.parametrize("read", [loads, read_json, repair_json])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_only_so_many_levels_are_read(read: object, opening: str, closing: str) -> None:
    assert callable(read)
    inner = '"[[["' if opening == "[" else "1"
    read(opening * MAX_DEPTH + inner + closing * MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 980, 100_000):
        with pytest.raises(ValueError, match="deep"):
            read(opening * depth + inner + closing * depth)
    read("[" + ",".join(["[]"] * 1000) + "]")

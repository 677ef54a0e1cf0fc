"""The score of calls, as BFCL counts them."""

import json
from pathlib import Path

import pytest

from bench import calls

ANSWERS = [{"maps.find": {"place": ["Bonn", "Bonn, DE"], "radius": [5], "kind": ["cafe", ""]}}]
SCHEMA = {"type": "dict", "properties": {"radius": {"type": "float"}, "any": {"type": "any"}}}


@pytest.mark.parametrize(
    ("made", "right"),
    [
        ([("maps_find", {"place": "bonn", "radius": 5})], True),
        ([("maps_find", {"place": "Bonn DE", "radius": 5.0, "kind": "Cafe"})], True),
        ([("maps_find", {"place": "Bonn", "radius": 6})], False),
        ([("maps_find", {"place": "Bonn", "radius": 5, "more": 1})], False),
        ([("maps_find", {"place": "Bonn"})], False),
        ([("maps_find", {"place": "Bonn", "radius": 5})] * 2, False),
        ([], False),
    ],
)
def test_a_call_is_right_if_each_value_is_a_possible_one(
    *, made: list[calls.Call], right: bool
) -> None:
    assert calls.is_right(made, ANSWERS) is right


def test_tasks_are_spread_and_have_json_schemas(tmp_path: Path) -> None:
    (tmp_path / "possible_answer").mkdir()
    name = "BFCL_v4_multiple.json"
    tasks = [{"id": i, "function": [{"name": "a.b", "parameters": SCHEMA}]} for i in range(9)]
    (tmp_path / name).write_text("\n".join(map(json.dumps, tasks)), "utf-8")
    truth = "\n".join(json.dumps({"ground_truth": [i]}) for i in range(9))
    (tmp_path / "possible_answer" / name).write_text(truth, "utf-8")
    read = list(calls.read_tasks(tmp_path, "multiple", 3))
    assert [task["answers"] for task in read] == [[0], [3], [6]]
    tools = calls.offered(read[0])
    assert calls.is_valid(("a_b", {"radius": 2, "any": []}), tools)
    assert not calls.is_valid(("a_b", {"radius": "2"}), tools)
    assert not calls.is_valid(("a.b", {}), tools)

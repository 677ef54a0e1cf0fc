"""The replayed sessions have the stated sizes, and grammars allow exactly their answers."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.replay.__main__ import OURS, PLAIN, add_to_file, load_file, table
from bench.replay.drive import Result, Step, literal
from bench.replay.plot import draw
from bench.replay.sessions import PLANS, sessions
from shepherd.backends.inprocess.gbnf import add_gbnf
from shepherd.backends.inprocess.lark import Rules
from shepherd.backends.inprocess.matcher import BYTES, compile_grammar, tokenizer_for


def test_there_are_ten_sessions_of_the_stated_sizes() -> None:
    played = sessions()
    assert len(played) == len(PLANS) == 10
    assert played == sessions()
    for session, plan in zip(played, PLANS, strict=True):
        assert len(session.system) == plan.system
        assert len(session.turns) == plan.answers
        assert {turn.assistant for turn in session.turns}
    assert max(len(turn.user) for session in played for turn in session.turns) > 5_000


def test_calls_are_json_and_edits_repeat_what_was_read() -> None:
    calls = [
        json.loads(turn.assistant)
        for session in sessions()
        for turn in session.turns
        if turn.assistant.startswith("{")
    ]
    assert {"grep", "read_file", "edit_file", "run_command"} == {call["name"] for call in calls}
    for call in calls:
        if call["name"] == "edit_file":
            assert call["arguments"]["old"] != call["arguments"]["new"]


def test_a_grammar_allows_exactly_its_answer() -> None:
    tokenizer = tokenizer_for(BYTES)
    for text in {turn.assistant for session in sessions()[:3] for turn in session.turns[:6]}:
        rules = Rules()
        matcher = compile_grammar(rules.text(add_gbnf(rules, literal(text))), tokenizer)
        assert matcher.compute_ff_bytes() == text.encode()


STEPS = [Step(0.1, 0.2, 100, 60, 9), Step(0.3, 0.5, 100, 100, 9)]
RESULTS = [Result(OURS, 5.0, STEPS), Result(PLAIN, 10.0, STEPS)]


def test_the_table_compares_with_the_best_other_server() -> None:
    lines = table(RESULTS).splitlines()
    assert "0.50 ×" in lines[2]
    assert "1.00 ×" in lines[3]
    assert "| 40 | 160 | 18 |" in lines[2]


def test_the_plot_has_two_parts_of_a_bar_for_each_server() -> None:
    picture = ET.fromstring(draw({"a <model>, one agent": RESULTS, "another": RESULTS}))
    (_, *bars) = picture.findall("{*}rect")
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert len(widths) == 8
    assert widths[0] / (widths[0] + widths[1]) == pytest.approx(0.4 / 0.7, abs=0.01)
    assert sum(widths[2:4]) == pytest.approx(2 * sum(widths[:2]), abs=0.5)
    assert "a <model>, one agent" in [text.text for text in picture.findall("{*}text")]


def test_results_are_added_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    add_to_file(file, {"one": RESULTS})
    add_to_file(file, {"two": RESULTS[:1], "one": RESULTS[1:]})
    assert load_file(file) == {"one": RESULTS[1:], "two": RESULTS[:1]}


def test_further_sessions_add_to_a_result() -> None:
    more = RESULTS[0].with_more(2.0, STEPS[:1])
    assert more == Result(OURS, 7.0, [*STEPS, STEPS[0]])

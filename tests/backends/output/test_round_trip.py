"""Parsing is the inverse of writing, for every family and every way of writing a call."""

from collections.abc import Callable
from html import escape
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.output.style import STYLES
from tests.backends.output.families import FAMILIES, Family
from tests.backends.output.support import Outcome, parse
from tests.backends.output.writers import Arguments, Call, as_json, as_text
from tests.examples import examples


def fenced_json(name: str, arguments: Arguments) -> str:
    return f"```json\n{as_json({'name': name, 'arguments': arguments})}\n```"


def element(name: str, arguments: Arguments) -> str:
    attributes = "".join(f' {k}="{escape(as_text(v))}"' for k, v in arguments.items())
    return f"<{name}{attributes}/>"


string = st.text(st.characters(exclude_categories=("Cs",)), max_size=30) | st.sampled_from(
    ["a\nb", '"', "\\", "\\n", "</div>", "{}", "5", "true", "null", " x ", "'", "]", "日本"]
)
tame_string = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<>|"),
    min_size=1,
    max_size=30,
) | st.sampled_from(["a\nb", "<b>x</b>", "</div>", "if (a < b) { c }", "5", "true", '"', "'", "\\"])
number = st.integers(-(10**6), 10**6)
nested: st.SearchStrategy[Any] = st.dictionaries(
    st.from_regex(r"[a-z]{1,5}", fullmatch=True), tame_string | number | st.booleans(), max_size=3
)


def calls(text: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    def made(name: str, required: str, **optional: st.SearchStrategy[Any]) -> Any:
        keys = dict.fromkeys(required.split(), text)
        return st.tuples(st.just(name), st.fixed_dictionaries(keys, optional=optional))

    return st.one_of(
        made("get_time", ""),
        made("read_file", "path", limit=number),
        made("write_file", "path content"),
        made("edit_file", "path old_string new_string", replace_all=st.booleans()),
        made("http_request", "url", headers=nested, tags=st.lists(text | number, max_size=3)),
    )


def check(family: Family, *written: Call) -> None:
    outcome = understood(family, family.calls(written))
    assert outcome.calls == written
    assert outcome.content == ""


def understood(family: Family, text: str) -> Outcome:
    style = replace(STYLES[family.style], separator=family.separator)
    return parse(text, style, prompt_tail="<|start|>assistant" * (family.style == "harmony"))


def families(*, tame: bool | None = None, many: bool | None = None) -> Any:
    chosen = (
        pytest.param(family, id=name)
        for name, family in FAMILIES.items()
        if tame in (None, family.tame) and many in (None, family.many)
    )
    return pytest.mark.parametrize("family", list(chosen))


@families(tame=False)
@settings(max_examples=examples(40, 5), deadline=None)
@given(call=calls(string))
def test_a_call_with_arguments_as_json(family: Family, call: Call) -> None:
    check(family, call)


@families(tame=True)
@settings(max_examples=examples(40, 5), deadline=None)
@given(call=calls(tame_string))
def test_a_call_with_arguments_as_text(family: Family, call: Call) -> None:
    check(family, call)


@families(many=True)
@settings(max_examples=examples(20, 5), deadline=None)
@given(written=st.lists(calls(tame_string), min_size=2, max_size=4))
def test_several_calls(family: Family, written: list[Call]) -> None:
    check(family, *written)


@pytest.mark.parametrize("write", [fenced_json, element])
@settings(max_examples=examples(60), deadline=None)
@given(call=calls(tame_string))
def test_the_ways_of_no_family(write: Callable[[str, Arguments], str], call: Call) -> None:
    outcome = parse(write(*call))
    assert outcome.calls == (call,)
    assert outcome.content == ""


@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "GPT-OSS"])
def test_several_messages_of_calls_with_prose_around(name: str) -> None:
    family = FAMILIES[name]
    first, second = ("read_file", {"path": "a"}), ("read_file", {"path": "b", "limit": 3})
    text = f"Both:\n{family.calls([first])}\n{family.calls([second])}\nDone."
    outcome = parse(text)
    assert outcome.calls == (first, second)
    assert outcome.content == "Both:\nDone."


@families()
@settings(max_examples=examples(60), deadline=None)
@given(
    content=st.text(st.sampled_from("ab \n"), max_size=8),
    reasoning=st.sampled_from(["", "Hm.", "Hm.\n\nSo.", " x "]),
    written=st.lists(calls(tame_string), max_size=3),
)
def test_history_renders_to_what_was_generated(
    family: Family, content: str, reasoning: str, written: list[Call]
) -> None:
    """Rendering the parsed message gives the output again, so nothing is decoded twice."""
    written = written if family.many else written[:1]
    content = content.strip("\n") if reasoning or family.spoken[0] else content
    if (written or family.spoken[0]) and not content.strip():
        content = ""
    output = family.render(reasoning, content, written)
    parsed = understood(family, output)
    assert (parsed.reasoning, parsed.content) == (reasoning, content)
    assert family.render(parsed.reasoning, parsed.content, parsed.calls) == output

"""The notation of every family is derived, read and written again under a grammar."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.inprocess.calls import calls_rule
from shepherd.backends.inprocess.constraint import Constrainer
from shepherd.backends.inprocess.formats import is_understood
from shepherd.backends.inprocess.lark import Rules
from shepherd.backends.inprocess.matcher import BYTES, compile_grammar, tokenizer_for
from shepherd.backends.output.derive import Derived, derive
from shepherd.backends.output.known import unwritten
from shepherd.backends.output.notation import Notation
from shepherd.backends.output.style import STYLES
from shepherd.messages import Message
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.backends.output.families import FAMILIES, Family
from tests.backends.output.support import TOOLS, parse
from tests.backends.output.test_round_trip import calls, tame_string
from tests.backends.output.writers import Arguments, Call
from tests.examples import examples

families = pytest.mark.parametrize("name", FAMILIES)
TOKENIZER = tokenizer_for(BYTES)


def derived(family: Family) -> Derived | None:
    """What is derived from the family's template."""

    def render(message: Message | None) -> str:
        head = f"<s>user: hi\n{family.head}"
        if message is None:
            return head
        written = [(call.name, call.arguments) for call in message.tool_calls]
        if family.many or len(written) < 2:
            return head + family.render("", message.content, written) + family.turn_end
        answers = (family.render("", "", [call]) for call in written)
        return "".join(f"{head}{answer}{family.turn_end}" for answer in answers)

    return derive(render)


def accepts(notation: Notation, text: str) -> str:
    """The text behind what the grammar of calls accepts; "" if it accepts all, and may end so."""
    rules = Rules()
    grammar = rules.text(calls_rule(rules, notation, TOOLS, many=True))
    matcher = compile_grammar(grammar, TOKENIZER)
    data = text.encode()
    used = matcher.try_consume_tokens(list(data))
    return "" if used == len(data) and matcher.is_accepting() else data[used:].decode() or "(more)"


def in_order(name: str, arguments: Arguments) -> Arguments:
    """The arguments in the order of the tool's schema, in which a grammar wants them."""
    (tool,) = (tool for tool in TOOLS if tool.name == name)
    return {key: arguments[key] for key in tool.parameters["properties"] if key in arguments}


@families
def test_what_the_template_writes_is_described_and_read(name: str) -> None:
    family = FAMILIES[name]
    found = derived(family)
    assert found is not None
    assert found.notation.many is family.many
    style = replace(STYLES[family.style], separator=family.separator)
    assert is_understood(found, style)


@families
@settings(max_examples=examples(20, 3), deadline=None)
@given(written=st.lists(calls(tame_string), min_size=1, max_size=2))
def test_the_grammar_takes_what_the_template_writes(name: str, written: list[Call]) -> None:
    family = FAMILIES[name]
    found = derived(family)
    assert found is not None
    ordered = [(name, in_order(name, arguments)) for name, arguments in written]
    text = family.calls(ordered if family.many else ordered[:1])
    assert accepts(found.notation, text) == ""


@families
@settings(max_examples=examples(40, 5), deadline=None)
@given(
    written=st.lists(calls(tame_string), min_size=1, max_size=3),
    size=st.integers(1, 12),
    content=st.sampled_from(["", "Now."]),
)
def test_calls_are_read_by_their_own_notation(
    name: str, written: list[Call], size: int, content: str
) -> None:
    family = FAMILIES[name]
    found = derived(family)
    assert found is not None
    style = replace(STYLES[family.style], separator=family.separator, notations=(found.notation,))
    written = written if family.many else written[:1]
    text = family.render("", content, written)
    tail = "<|start|>assistant" * (family.style == "harmony")
    chunks = (text[i : i + size] for i in range(0, len(text), size))
    outcome = parse(chunks, style, prompt_tail=tail)
    assert (list(outcome.calls), outcome.content) == (written, content)


@families
@settings(max_examples=examples(20, 3), deadline=None)
@given(call=calls(tame_string))
def test_the_grammar_of_free_calls_takes_what_the_template_writes(name: str, call: Call) -> None:
    family = FAMILIES[name]
    found = derived(family)
    assert found is not None
    style = replace(STYLES[family.style], notations=(found.notation,))
    free = Constrainer(style).constraint(Session(tools=list(TOOLS)), "")
    text = family.calls([(call[0], in_order(*call))])
    if free is None:  # nothing identifies the beginning of a call
        assert not text.startswith(("<tool", "[TOOL")) or "«" in found.notation.lead
        return
    assert free.names == tuple(tool.name for tool in TOOLS)
    behind = text.removeprefix(free.trigger)
    assert behind.startswith(f"{free.opening}{call[0]}{free.behind_name}")
    matcher = compile_grammar(free.grammar, TOKENIZER)
    data = list(behind.encode())
    assert matcher.try_consume_tokens(data) == len(data)
    assert matcher.is_accepting()


def test_a_template_that_sorts_arguments_has_them_in_that_order() -> None:
    hermes = FAMILIES["Hermes, Qwen, Granite 4"]

    def write(call: Call, index: int) -> str:
        return hermes.write((call[0], dict(sorted(call[1].items()))), index)

    ordered = dataclasses.replace(hermes, write=write)
    for family in (hermes, ordered):
        found = derived(family)
        assert found is not None
        assert found.notation.ordered is (family is ordered)
        written = family.calls([("write_file", {"path": "a", "content": "b"})])
        assert accepts(found.notation, written) == ""


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=read_file> and then its parameters.",
        "<tool_call>\n<function=get_time>\nNo.\n</function>\n</tool_call>",
    ],
)
def test_prose_behind_the_beginning_of_an_own_call_is_no_call(text: str) -> None:
    found = derived(FAMILIES["Qwen3-Coder"])
    assert found is not None
    outcome = parse(list(text), replace(STYLES["chatml"], notations=(found.notation,)))
    assert (outcome.calls, outcome.content) == ((), text)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{# available_tools: respond with <|tool_call|> #}", "Granite 3.3"),
        ("{{ 'List of tools: ' }}", "LFM2"),
    ],
)
@settings(max_examples=examples(20, 3), deadline=None)
@given(written=st.lists(calls(tame_string), min_size=1, max_size=2))
def test_what_a_template_does_not_write_is_in_the_table(
    template: str, name: str, written: list[Call]
) -> None:
    (notation,) = unwritten(template)
    family = FAMILIES[name]
    text = family.calls([(name, in_order(name, arguments)) for name, arguments in written])
    assert accepts(notation, text) == ""
    style = replace(STYLES[family.style], notations=(notation,))
    assert list(parse(list(text), style).calls) == written


def test_forced_answers_of_channels_may_be_thought_about() -> None:
    found = derived(FAMILIES["GPT-OSS"])
    assert found is not None
    constrainer = Constrainer(replace(STYLES["harmony"], notations=(found.notation,)))
    tail = "<|start|>assistant"
    thought = "<|channel|>analysis<|message|>Hm. <b>So</b>.<|end|><|start|>assistant"
    forced = Session(tools=list(TOOLS), tool_choice=ToolChoice("get_time"))
    schema = Session(output_format=OutputFormat({"type": "integer"}))
    call = FAMILIES["GPT-OSS"].calls([("get_time", {})])
    for session, answer in (
        (forced, call),
        (forced, thought + call),
        (schema, "<|channel|>final<|message|>7"),
        (schema, f"{thought}<|channel|>final<|message|>7"),
    ):
        constraint = constrainer.constraint(session, tail)
        assert constraint is not None
        matcher = compile_grammar(constraint.grammar, TOKENIZER)
        data = list(answer.encode())
        assert matcher.try_consume_tokens(data) == len(data), answer
        assert matcher.is_accepting()

"""Parsing is the inverse of writing, for every way of writing a call."""

import json
from collections.abc import Callable
from html import escape
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.output import STYLES
from tests.backends.output.support import TOOLS, parse

Arguments = dict[str, Any]
Call = tuple[str, Arguments]


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def hermes(name: str, arguments: Arguments) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {as_json(arguments)}}}\n</tool_call>'


def bare_json(name: str, arguments: Arguments) -> str:
    return as_json({"name": name, "parameters": arguments})


def fenced_json(name: str, arguments: Arguments) -> str:
    return f"```json\n{as_json({'name': name, 'arguments': arguments})}\n```"


def python_tag(name: str, arguments: Arguments) -> str:
    return "<|python_tag|>" + bare_json(name, arguments)


def mistral(name: str, arguments: Arguments) -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{as_json(arguments)}"


def deepseek_v3(name: str, arguments: Arguments) -> str:
    call = f"function<｜tool▁sep｜>{name}\n```json\n{as_json(arguments)}\n```"
    return (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


def deepseek_v31(name: str, arguments: Arguments) -> str:
    call = f"{name}<｜tool▁sep｜>{as_json(arguments)}"
    return (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


def kimi(name: str, arguments: Arguments) -> str:
    return (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0"
        f"<|tool_call_argument_begin|>{as_json(arguments)}<|tool_call_end|>"
        "<|tool_calls_section_end|>"
    )


def pythonic(name: str, arguments: Arguments) -> str:
    return f"[{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})]"


def qwen_xml(name: str, arguments: Arguments) -> str:
    values = "".join(f"<parameter={k}>\n{as_text(v)}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


def naked_xml(name: str, arguments: Arguments) -> str:
    return qwen_xml(name, arguments).removeprefix("<tool_call>\n")


def glm(name: str, arguments: Arguments) -> str:
    values = "".join(
        f"\n<arg_key>{k}</arg_key>\n<arg_value>{as_text(v)}</arg_value>"
        for k, v in arguments.items()
    )
    return f"<tool_call>{name}{values}\n</tool_call>"


def minimax(name: str, arguments: Arguments) -> str:
    values = "".join(
        f'<parameter name="{k}">{as_text(v)}</parameter>\n' for k, v in arguments.items()
    )
    return f'<minimax:tool_call>\n<invoke name="{name}">\n{values}</invoke>\n</minimax:tool_call>'


def element(name: str, arguments: Arguments) -> str:
    attributes = "".join(f' {k}="{escape(as_text(v))}"' for k, v in arguments.items())
    return f"<{name}{attributes}/>"


def harmony(name: str, arguments: Arguments) -> str:
    return (
        f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json"
        f"<|message|>{as_json(arguments)}<|call|>"
    )


def gemma4(name: str, arguments: Arguments) -> str:
    def write(value: Any) -> str:
        if isinstance(value, str):
            return f'<|"|>{value}<|"|>'
        if isinstance(value, dict):
            return "{" + ",".join(f"{k}:{write(v)}" for k, v in value.items()) + "}"  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, list):
            return "[" + ",".join(map(write, value)) + "]"  # pyright: ignore[reportUnknownArgumentType]
        return as_json(value)

    return f"<|tool_call>call:{name}{write(arguments)}<tool_call|>"


JSON_WRITERS = [
    hermes, bare_json, fenced_json, python_tag, mistral, deepseek_v3, deepseek_v31, kimi, pythonic,
    harmony,
]  # fmt: skip
TEXT_WRITERS = [qwen_xml, naked_xml, glm, minimax, element, gemma4]

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


def check(write: Callable[[str, Arguments], str], call: Call) -> None:
    style = STYLES["harmony" if write is harmony else "generic"]
    outcome = parse(write(*call), style)
    assert outcome.calls == (call,)
    assert outcome.content == ""


@pytest.mark.parametrize("write", JSON_WRITERS)
@settings(max_examples=60, deadline=None)
@given(call=calls(string))
def test_json_formats(write: Callable[[str, Arguments], str], call: Call) -> None:
    check(write, call)


@pytest.mark.parametrize("write", TEXT_WRITERS)
@settings(max_examples=60, deadline=None)
@given(call=calls(tame_string))
def test_text_formats(write: Callable[[str, Arguments], str], call: Call) -> None:
    check(write, call)


@pytest.mark.parametrize("write", [w for w in JSON_WRITERS + TEXT_WRITERS if w is not harmony])
def test_several_calls_with_prose_around(write: Callable[[str, Arguments], str]) -> None:
    first, second = ("read_file", {"path": "a"}), ("read_file", {"path": "b", "limit": 3})
    text = f"Both:\n{write(*first)}\n{write(*second)}\nDone."
    outcome = parse(text)
    assert outcome.calls == (first, second)
    assert outcome.content == "Both:\nDone."


@settings(max_examples=200, deadline=None)
@given(
    content=st.text(st.sampled_from("ab \n"), max_size=8),
    reasoning=st.sampled_from(["", "Hm.", "Hm.\n\nSo.", " x "]),
    written=st.lists(calls(string), max_size=3),
    separator=st.sampled_from(["", "\n"]),
)
def test_history_renders_to_what_was_generated(
    content: str, reasoning: str, written: list[Call], separator: str
) -> None:
    """A template as Qwen's, and as Pup's: rendering the parsed message gives the output again."""
    if content.startswith("\n") and reasoning:
        content = content.lstrip("\n")
    if written and not content.strip():
        content = ""

    def render(reasoning: str, content: str, made: list[Call]) -> str:
        thought = f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""
        before = separator if made and content else ""
        return thought + content + before + "\n".join(hermes(*c) for c in made)

    style = STYLES["chatml"]
    output = render(reasoning, content, written)
    parsed = parse(output, type(style)(style.family, style.think, style.formats, separator), TOOLS)
    assert render(parsed.reasoning, parsed.content, list(parsed.calls)) == output

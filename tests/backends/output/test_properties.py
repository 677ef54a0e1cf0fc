"""What holds for every output, however odd."""

import json
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.output.notation import Fields, Notation
from shepherd.backends.output.style import STYLES, OutputStyle
from shepherd.messages import ToolSpec
from tests.backends.output.strategies import cut_seeds, cuts, marked_text, text_with_words
from tests.backends.output.support import TOOLS, Outcome, parse, pieces, schema
from tests.examples import examples

PROMPT_TAILS = ("", "<think>\n", "<|start|>assistant", "</think>\n\n")
NEVER_CALLED = (ToolSpec("unheard_of", "", schema()),)

OWN = (
    Notation(
        "<tool_call>\n<function=",
        ">",
        "\n</function>\n</tool_call>",
        between="\n",
        fields=Fields("\n<parameter=", ">\n", "\n</parameter>"),
    ),
    Notation(
        '\n<invoke name="',
        '">',
        "\n</invoke>",
        begin="<function_calls>",
        end="\n</function_calls>",
        fields=Fields('\n<parameter name="', '">', "</parameter>"),
    ),
    Notation(
        "<tool_call>",
        "",
        "</tool_call>",
        fields=Fields("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
    ),
    Notation("<function=", ">", "</function>"),
)
"""How the models write calls whose templates tell it."""
own_styles = tuple(replace(STYLES["chatml"], notations=(notation,)) for notation in OWN)
any_style = st.sampled_from((*(STYLES[name] for name in sorted(STYLES)), *own_styles))


@settings(max_examples=examples(500), deadline=None)
@given(
    text=marked_text,
    seeds=cut_seeds,
    style=any_style,
    tail=st.sampled_from(PROMPT_TAILS),
    tools=st.sampled_from([TOOLS, ()]),
    truncated=st.booleans(),
)
def test_chunks_do_not_matter(
    *,
    text: str,
    seeds: list[int],
    style: OutputStyle,
    tail: str,
    tools: tuple[ToolSpec, ...],
    truncated: bool,
) -> None:
    def run(chunks: str | Iterable[str]) -> Outcome:
        return parse(chunks, style, tools, prompt_tail=tail, truncated=truncated)

    whole = run(text)
    assert run(pieces(text, cuts(text, seeds))) == whole
    assert run(list(text)) == whole
    assert whole.shown == whole.content


@settings(max_examples=examples(500), deadline=None)
@given(
    marked=text_with_words(),
    style=st.sampled_from((STYLES["chatml"], *own_styles)),
    truncated=st.booleans(),
)
def test_no_word_is_lost_or_doubled(
    *, marked: tuple[str, list[str]], style: OutputStyle, truncated: bool
) -> None:
    text, words = marked
    outcome = parse(text, style, truncated=truncated)
    found = "\n".join((outcome.content, outcome.reasoning, json.dumps(outcome.calls)))
    assert [found.count(w) for w in words] == [text.count(w) for w in words]


@settings(max_examples=examples(400), deadline=None)
@given(
    marked=text_with_words(),
    tools=st.sampled_from([NEVER_CALLED, ()]),
    truncated=st.booleans(),
)
def test_what_is_no_call_is_content_as_it_is(
    *, marked: tuple[str, list[str]], tools: tuple[ToolSpec, ...], truncated: bool
) -> None:
    plain = marked[0].replace("think", "thin")
    assert parse(plain, tools=tools, truncated=truncated).content == plain


@settings(max_examples=examples(200), deadline=None)
@given(marked_text)
def test_only_tools_on_offer_are_called(text: str) -> None:
    offered = TOOLS[1:2]
    assert {name for name, _ in parse(text, tools=offered).calls} <= {offered[0].name}


@settings(max_examples=examples(300), deadline=None)
@given(st.text())
def test_text_without_markup_is_content_as_it_is(text: str) -> None:
    plain = "".join(c for c in text if c not in "<[{`~|")
    assert parse(plain).content == plain

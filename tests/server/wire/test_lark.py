"""Lark grammars of the text of custom tools."""

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher

from shepherd.backends.inprocess.lark import Rules
from shepherd.backends.inprocess.matcher import BYTES, compile_grammar, tokenizer_for
from shepherd.errors import InvalidRequestError
from shepherd.server.wire.lark import arguments_rule

TOKENIZER = tokenizer_for(BYTES)
PATCH = r"""%llguidance {}
start: begin_patch hunk+ end_patch // as a coding agent sends it
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: "*** Add File: " filename LF add_line+ -> add
    | "*** Update File: " filename LF (context | change)+
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
context: ("@@" | "@@ " /(.+)/) LF
change: ("+" | "-" | " ") /(.*)/ LF
%import common.LF
"""
NESTED = r"""
?start: sum
sum: product (("+" | "-") product)*
!product: value ("*" value)*
value.2: NUMBER | "sin"i "(" sum ")" | ESCAPED_STRING | "(" sum ")"
    | [LETTER] "\u00e9" | LETTER ~ 2..3
LETTER: "a".."c"
%import common (NUMBER, ESCAPED_STRING)
%import common.WS -> SPACE
%ignore SPACE
%ignore /#[^\n]*/
"""


def matcher(grammar: str) -> LLMatcher:
    rules = Rules()
    return compile_grammar(rules.text(rules.add("a", arguments_rule(grammar, "input"))), TOKENIZER)


def accepts(start: LLMatcher, text: str) -> bool:
    """Whether the call with this text fits, byte by byte."""
    written = json.dumps({"input": text}, ensure_ascii=False).encode()
    copy = start.deep_copy()
    return copy.try_consume_tokens(list(written)) == len(written) and copy.is_accepting()


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (
            PATCH,
            [
                '*** Begin Patch\n*** Add File: a "b"\\.py\n+print("\\n")\t\n+\n*** End Patch\n',
                "*** Begin Patch\n*** Update File: é\n@@ f\n-a\n b\n*** End Patch",
            ],
            [
                "*** Begin Patch\n*** End Patch",
                "*** Begin Patch\n*** Add File: a\nb\n*** End Patch",
                "",
            ],
        ),
        (
            NESTED,
            ["1", " ( 1.5e3 +\n\t2*SIN(3) )", '"a\\"\n"*aé', "é # note", "ab-abc", "1 #a\n+2"],
            ["", "(1", "1+", '"a', "sin 1", "abca", "1 2", "a b é", "1é"],
        ),
        ("start: C\nC: A & ~B\nA: /[a\\n]+/\nB: /a*/", ["\n", "a\na"], ["a", "", "b"]),
        ('start: /(?s:.){2}(?i)k./s "\\x41"', ["\n\nK\nA", '""k"A'], ["\n\nl\nA", "a"]),
    ],
)  # fmt: skip
def test_exactly_the_texts_of_the_grammar_fit(
    grammar: str, good: list[str], bad: list[str]
) -> None:
    start = matcher(grammar)
    assert [text for text in good if not accepts(start, text)] == []
    assert [text for text in bad if accepts(start, text)] == []


SETS = st.sampled_from(
    [
        *(*'ab"é', r"\n", r"\t", r"\\", r"\.", r"\x22", ".", r"\s", r"\S", r"\d", r"\W"),
        *("[^a]", r"[^\n\"]", r"[ab\n]", r"[\\a-c]", '["-a]', "[]a]"),
    ]
)
REGULAR = st.recursive(
    SETS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)
TEXTS = st.text(st.sampled_from('ab"\\\n\t. é1/'), max_size=5)


@given(REGULAR, st.sampled_from(["", "s", "i"]), st.lists(TEXTS, min_size=5, max_size=5))
def test_a_regular_expression_means_what_it_means_in_python(
    pattern: str, flags: str, texts: list[str]
) -> None:
    expected = re.compile(f"(?{flags}:{pattern})")
    lexeme = f'start: /{pattern}/{flags} | "(" TEXT ")"\nTEXT: /[a]/'
    nested = f'start: /{pattern}/{flags} | "(" start ")"'
    for start in (matcher(lexeme), matcher(nested)):  # written as one lexeme, and by characters
        for text in texts:
            assert accepts(start, text) == bool(expected.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('start: "a"\n  | b', "'b' in line 2"),
        ('begin: "a"', "no rule or terminal 'start'"),
        ('start: "a', "line 1"),
        ("start: /[a/", "'[a' in a regular expression"),
        ("start: /a$/", "'$' in a regular expression"),
        ("start: /a(?=b)/", "'(?=b)' in a regular expression"),
        ("start: /a)/", "')' in a regular expression"),
        ("start: /(a/", "no )"),
        ("start: /a/x", "flags 'x'"),
        ("start: /(?x)a/", "'(?x)a'"),
        ("start: /[z-a]/", "'[z-a]'"),
        ('start: "a"\nstart: "b"', "defines 'start' twice in line 2"),
        ('start: "z".."a"', "range"),
        ('start: "\\q"', "unknown escape"),
        ("%import common.COLOR\nstart: COLOR", "imports 'COLOR'"),
        ("%import python.NAME\nstart: NAME", "line 1"),
        ("start: <|im_end|>", "<|im_end|>"),
        ("start: %json {}", "%json"),
        ("start: ok\nok[stop=/a/]: /b/", "line 2"),
        ("start: /" + "|".join(f"[^{chr(300 + i)}]" for i in range(257)) + "/", "256 sets"),
        ("start: /[[:alpha:]]/", "set made of sets"),
        ("start: /[a-z&&b]/", "set made of sets"),
        (r"start: /\p{L}/", r"'\\p{L}'"),
        ('start: ("a"', "')'"),
        ('start: a & "b"\na: "a" start', "& is only supported for tokens"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(grammar: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        matcher(grammar)
    assert message in str(caught.value)


@given(st.text(st.sampled_from('ab:"/\\[](){}|*+?~&.>-_%\n#,2<'), max_size=30))
def test_any_text_is_a_grammar_or_refused(text: str) -> None:
    with suppress(InvalidRequestError):
        matcher(f"start: {text}")

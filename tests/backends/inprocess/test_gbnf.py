"""GBNF keeps its meaning: what a grammar takes is what it says, to the byte."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.inprocess.gbnf import add_gbnf
from shepherd.backends.inprocess.lark import Rules
from shepherd.backends.inprocess.matcher import BYTES, compile_grammar, tokenizer_for
from shepherd.errors import InvalidRequestError
from tests.examples import examples

TOKENIZER = tokenizer_for(BYTES)


def taken(grammar: str, *texts: str) -> list[bool]:
    """Which of the texts the grammar takes, whole."""
    rules = Rules()
    start = compile_grammar(rules.text(add_gbnf(rules, grammar)), TOKENIZER)
    found: list[bool] = []
    for text in texts:
        matcher, data = start.deep_copy(), list(text.encode())
        found.append(matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting())
    return found


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        ('root ::= [a-z]* "end"', ["end", "abcend", "endend"], ["", "en", "abc"]),
        ('root ::= ("a" | "ab") "bc"', ["abc", "abbc"], ["ab", "abbbc"]),
        ('root ::= "a"? "ab"? "b"', ["b", "ab", "abb", "aabb"], ["", "a", "aab"]),
        ('root ::= x "," x\nx ::= [0-9]+ | "," # a comma', ["1,2", ",,,", "12,,"], ["1", ","]),
        ('root ::= "a"{2}{1,2} "b"{2,} ("c" "d"){0,1}', ["aabb", "aaaabbbcd"], ["aabbc", "abb"]),
        (
            r'root ::= "\x41\u00e9\U0001F600\n\"\\" [\x5D\u00e9-]',
            ['Aé😀\n"\\]', 'Aé😀\n"\\é', 'Aé😀\n"\\-'],
            ["A", 'Aé😀\n"\\'],
        ),
        (r"root ::= [^a\n] . [a^-]", ["b\n^", "é😀-"], ["aba", "b", "\nba"]),
        ('root ::=\n  "a" |\n  ( "b"\n | # or\n "c" )', ["a", "b", "c"], ["ab", ""]),
        ('root ::= ""', [""], ["a"]),
        ("root ::= [^]", ["a", "\n"], ["", "ab"]),
        ('root ::= "" | "a" ("b" | )', ["", "a", "ab"], ["b"]),
    ],
)
def test_a_grammar_takes_what_it_says(
    grammar: str,
    right: list[str],
    wrong: list[str],
    recursive: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    if recursive:
        grammar = re.sub("^root ::=", "inner ::=", grammar)
        grammar = f'root ::= inner | "(" root ")"\n{grammar}'
        assert taken(grammar, *(f"(({text}))" for text in right)) == [True] * len(right)
    assert taken(grammar, *right) == [True] * len(right)
    assert taken(grammar, *wrong) == [False] * len(wrong)


def test_recursion_from_the_left_and_in_the_middle() -> None:
    sums = 'root ::= root "+" [0-9]+ | [0-9]+'
    assert taken(sums, "1", "12+3+4", "+1", "1+") == [True, True, False, False]
    palindromes = 'root ::= "a" root "a" | "b" root "b" | ""'
    assert taken(palindromes, "", "abba", "aba", "abab") == [True, True, False, False]


EXPRESSIONS = st.recursive(
    st.sampled_from(['"a"', '"ab"', '"b"', "[ab]", '""', "[^b]"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda e: "(" + " ".join(e) + ")"),
        st.lists(inner, min_size=1, max_size=3).map(lambda e: "(" + " | ".join(e) + ")"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "{2}", "{1,2}"])).map(
            lambda e: f"({e[0]}){e[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(150), deadline=None)
@given(EXPRESSIONS, st.lists(st.text("abc", max_size=6), min_size=1, max_size=5))
def test_it_is_the_regular_expression_that_it_looks_like(expression: str, texts: list[str]) -> None:
    pattern = re.compile(re.sub(r'[" ]', "", expression))
    expected = [pattern.fullmatch(text) is not None for text in texts]
    for grammar in (
        f"root ::= {expression}",
        f'root ::= {expression} | "<" root ">"',
    ):
        assert taken(grammar, *texts) == expected


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ("root ::= (", "expecting \\)"),
        ('root ::= "a', "expecting the end"),
        ("root ::= []", "expecting a character"),
        ("root ::= [z-a]", "goes up"),
        ('root ::= "a"{2,1}', "goes up"),
        ('root ::= "a"{,1}', "a count such as"),
        (r'root ::= "\q"', "unknown escape"),
        (r'root ::= "\ud800"', "no such character"),
        ("root = 1", "::="),
        ("root ::= <think>", "by its number"),
        ('root ::= "a" | other', "'other'"),
        ('other ::= "a"', "'root'"),
    ],
)
def test_what_is_no_grammar_is_refused_with_its_place(grammar: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        taken(grammar)


@pytest.mark.parametrize("recursive", [False, True])
def test_a_literal_may_have_any_character(recursive: bool) -> None:  # noqa: FBT001 - a parameter
    characters = [chr(number) for number in range(0xA2)] + ["\u2028", "\ufeff", "\ufffd", "😀"]
    for character in characters:
        rest = ' | "(" root ")"' if recursive else ""
        grammar = f'root ::= "a\\U{ord(character):08X}"{rest}'
        assert taken(grammar, f"a{character}", "a") == [True, False]

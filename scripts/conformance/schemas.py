"""JSON-Schema-Test-Suite through the grammar of an answer, token by token.

A token is a byte here: what a grammar takes does not depend on the vocabulary.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any, NamedTuple, cast

from llguidance import LLMatcher

from scripts.conformance.place import commit, repository
from scripts.conformance.verdict import Verdict
from shepherd.backends.inprocess.lark import Rules, json_value
from shepherd.backends.inprocess.matcher import (
    BYTES,
    compile_grammar,
    ignored_keywords,
    tokenizer_for,
)
from shepherd.backends.inprocess.schema import EXACT, Schema, prepare
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject

DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}
ANNOTATION = "annotation by default"  # a format is always enforced here: see optional/format
MAX_SPELLINGS = 5_000
_BYTES = tokenizer_for(BYTES)

NARROWER = (
    "{count} valid values that an answer does not have on purpose: names that the schema does not "
    "list, types that it does not imply, tuples that are not whole, leap seconds, host names in "
    "Punycode"
)
REFUSED = "{count} of schemas that strict refuses with a 400 that says why ({reasons})"
UNNAMED = "{count} of schemas that are refused with a 400 that says why"

WHY = {
    "ref": ". A keyword beside a `$ref` counts, as in the drafts after 7",
    "format email": ". llguidance has no name in quotes with blanks",
    "format ipv6": ". llguidance has no IPv4 address at its end",
    "format json-pointer": ". A text has control characters only where the schema has some",
}
"""Why valid values are refused, where it is known."""


class Case(NamedTuple):
    """One schema with its tests."""

    draft: str
    keyword: str
    description: str
    schema: JsonObject
    tests: list[JsonObject]


class Grammar(NamedTuple):
    """A compiled schema, and the keywords that it does not enforce."""

    matcher: LLMatcher
    unenforced: frozenset[str]


def run(work: Path) -> list[Verdict]:
    """With strict, then without; the tests of formats are optional, and counted apart."""
    del work
    suite = repository("json-schema-org/JSON-Schema-Test-Suite")
    verdicts: list[Verdict] = []
    for strict, is_format in product((True, False), (False, True)):
        results, reasons = _Results(), Counter[str]()
        for case in cases(suite):
            if case.keyword.startswith("format ") == is_format:
                results.add(case, *_outcomes(case, strict=strict, reasons=reasons))
        left_out = [NARROWER.format(count=results.count("narrower"))]
        keywords = ", ".join(f"`{keyword}` {count}" for keyword, count in reasons.most_common(12))
        text = REFUSED if strict else UNNAMED
        left_out.append(text.format(count=results.count("refused"), reasons=keywords))
        verdicts.append(
            Verdict(
                judge="JSON-Schema-Test-Suite, "
                + ("optional formats, " if is_format else "")
                + ("with strict" if strict else "without strict"),
                version=commit(suite),
                passed=results.count("right"),
                applicable=results.count("right") + results.failed,
                left_out=tuple(left_out),
                failures=tuple(results.failures()),
                details=tuple(results.by_keyword()) if strict else (),
            )
        )
    return verdicts


class _Results:
    """What became of the tests, keyword by keyword."""

    def __init__(self) -> None:
        self._failures: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, case: Case, *outcomes: str) -> None:
        for test, outcome in zip(case.tests, outcomes, strict=True):
            self._counts[case.keyword][outcome] += 1
            if outcome not in ("right", "narrower", "refused"):
                where = f"{case.draft}, {case.description}, {test['description']}"
                self._failures[case.keyword, outcome].append(where)

    @property
    def failed(self) -> int:
        return sum(map(len, self._failures.values()))

    def failures(self) -> Iterator[str]:
        for (keyword, outcome), places in self._failures.items():
            first = f"({len(places)}, the first: `{places[0]}`)"
            yield f"`{keyword}`: {outcome} {first}{WHY.get(keyword, '')}"

    def count(self, outcome: str) -> int:
        return sum(counts[outcome] for counts in self._counts.values())

    def by_keyword(self) -> Iterator[str]:
        for keyword, counts in sorted(self._counts.items()):
            refused, narrower = counts["refused"], counts["narrower"]
            applicable = counts.total() - refused - narrower
            if applicable:
                rest = [f"{refused} refused"] * bool(refused)
                rest += [f"{narrower} narrower"] * bool(narrower)
                right = f"{counts['right']} of {applicable}"
                yield f"`{keyword}`: {', '.join((right, *rest))}"
            else:
                yield f"`{keyword}`: not enforced, {refused} refused"


def cases(suite: Path) -> Iterator[Case]:
    """All schemas of both drafts, the optional ones of formats too."""
    for draft, dialect in DRAFTS.items():
        folder = suite / "tests" / draft
        for path in (*sorted(folder.glob("*.json")), *sorted(folder.glob("optional/format/*"))):
            is_format = path.parent != folder
            for case in json.loads(path.read_text("utf-8")):
                given: JsonObject | bool = case["schema"]
                schema = {"allOf": [given]} if isinstance(given, bool) else given
                tests = [test for test in case["tests"] if ANNOTATION not in test["description"]]
                if tests:
                    keyword = f"format {path.stem}" if is_format else path.stem
                    schema = {"$schema": dialect, **schema}
                    yield Case(draft, keyword, case["description"], schema, tests)


def _outcomes(case: Case, *, strict: bool, reasons: Counter[str]) -> list[str]:
    """What became of each test of one schema."""
    try:
        grammar = compiled(case.schema, strict=strict)
    except InvalidRequestError as error:
        if not any(test["valid"] for test in case.tests):
            return ["right"] * len(case.tests)
        reasons[_reason(str(error))] += len(case.tests)
        return ["refused"] * len(case.tests)
    return [_outcome(case.schema, test, grammar, strict=strict) for test in case.tests]


def _outcome(schema: JsonObject, test: JsonObject, grammar: Grammar, *, strict: bool) -> str:
    is_taken = takes(grammar.matcher, test["data"])
    if is_taken and not test["valid"]:
        return "right" if grammar.unenforced else "an invalid value is taken"
    if is_taken or not test["valid"]:
        return "right"
    # strict does not narrow beside a `oneOf`
    definitions: JsonObject = {"$defs": {**schema.get("$defs", {}), "_": {"oneOf": []}}}
    try:
        wide = prepare({**schema, **definitions}, strict=True)
        if schema.get("format") in EXACT:
            wide = Schema(schema, wide.unenforced)
        is_wide = takes(_compiled(wide, strict=strict).matcher, test["data"])
    except InvalidRequestError:
        is_wide = False
    return "narrower" if is_wide else "a valid value is refused"


def compiled(schema: JsonObject, *, strict: bool) -> Grammar:
    """A schema as the grammar of an answer; raises InvalidRequestError."""
    return _compiled(prepare(schema, strict=strict), strict=strict)


def _compiled(prepared: Schema, *, strict: bool) -> Grammar:
    rules = Rules()
    answer = rules.add("answer", json_value(prepared.value, strict=strict))
    matcher = compile_grammar(rules.text(answer), _BYTES)
    return Grammar(matcher, prepared.unenforced | set(ignored_keywords(matcher)))


def takes(matcher: LLMatcher, value: Any) -> bool:
    """Whether a grammar takes a value, however it is written."""
    return any(takes_text(matcher, text) for text in islice(_spellings(value), MAX_SPELLINGS))


def takes_text(matcher: LLMatcher, text: str) -> bool:
    """Whether a grammar takes a text, whole."""
    data = list(text.encode("utf-8", "surrogatepass"))
    copy = matcher.deep_copy()
    return copy.try_consume_tokens(data) == len(data) and copy.is_accepting()


def _spellings(value: Any) -> Iterator[str]:
    """The texts of a value: its names in any order, 1.0 as 1 too."""
    text: Callable[[Any], str] = lambda part: json.dumps(part, ensure_ascii=False)  # noqa: E731
    if isinstance(value, dict):
        for pairs in permutations(cast(JsonObject, value).items()):
            for inner in product(*(list(_spellings(part)) for _, part in pairs)):
                named = zip((name for name, _ in pairs), inner, strict=True)
                yield "{" + ", ".join(f"{text(name)}: {part}" for name, part in named) + "}"
    elif isinstance(value, list):
        for inner in product(*(list(_spellings(part)) for part in cast(list[Any], value))):
            yield "[" + ", ".join(inner) + "]"
    else:
        yield text(value)
        if isinstance(value, float) and value.is_integer():
            yield text(int(value))


def _reason(message: str) -> str:
    """The first keyword that a refusal names."""
    _, _, keywords = message.partition("strict: ")
    words = ("oneOf", "Resource", "patternProperty", "format", "Anchor", "Unsatisfiable")
    named = next((word for word in words if word in message), "others")
    names = {"Resource": "other documents", "patternProperty": "patternProperties"}
    return keywords.split(",")[0].split(" ")[0].rstrip(".") or names.get(named, named)

"""Small grammars and schemas that cost a parser far more than they look."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from shepherd.messages import JsonObject

_CHAIN = [f"r{i}" for i in range(41)]
_STEPS = "\n".join(f"{a} ::= {b} {b}" for a, b in pairwise(_CHAIN))
_EITHER = "\n".join(f"{a} ::= {b} | {b} {b}" for a, b in pairwise(_CHAIN))


def grammars() -> dict[str, str]:
    """GBNF."""
    far = range(1500)
    return {
        "optional texts": "root ::= " + " ".join(['"a"?'] * 2000),
        "optional letters of a rule in itself": 'root ::= "x" '
        + " ".join("[a-z]?" for _ in far)
        + ' root | "y"',
        "optional texts of a rule in itself": 'root ::= "x" (' + '"a"? ' * 2000 + ')* root | "y"',
        "doubled emptiness": f'root ::= r0\n{_STEPS}\nr40 ::= ""',
        "doubled letter": f'root ::= r0\n{_STEPS}\nr40 ::= "a"',
        "doubled choice": f'root ::= r0\n{_EITHER}\nr40 ::= "a"',
        "doubled emptiness in itself": f'root ::= r0 "x" root | "y"\n{_STEPS}\nr40 ::= ""',
        "doubled option in itself": f'root ::= r0 "x" root | "y"\n{_STEPS}\nr40 ::= "a"?',
        "large count": 'root ::= "a"{0,100000}',
        "counts of counts": "root ::= [a-z]{1,1000}{1,1000}",
        "counts of counts in itself": 'root ::= (("a"{0,1000}){0,1000}){0,1000} "x" root | "y"',
        "signs": 'root ::= "a"' + "*" * 60_000,
        "brackets": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000,
        "a rule that is itself": "root ::= root",
        "a rule that is itself twice": 'root ::= root root | ""',
        "a rule that is itself thrice": 'root ::= root root root | "a" | ""',
        "ambiguous letters": 'root ::= s\ns ::= s s s | s s | [a-z] | ""',
        "from the left": 'root ::= n root "a" | "b"\nn ::= "" | "x"',
        "many ways in itself": "root ::= (" + " | ".join("[a-z]*" for _ in far) + ') root | "y"',
        "the same way": "root ::= " + " | ".join('"a"' for _ in range(9000)) + " | root root",
        "far back": 'root ::= [ab]* "a" [ab]{60}',
        "unreachable": 'root ::= "a"\n'
        + "\n".join(f'u{i} ::= "a"{{0,1000}} "b"' for i in range(2000)),
        "long class": "root ::= [" + "".join(chr(0x100 + 2 * i) for i in range(8_000)) + "]*",
        "long text": 'root ::= "' + "a" * 60_000 + '"',
        "long text in itself": 'root ::= "' + "a" * 15_000 + '" root?',
        "long chain of options": "root ::= c0 root | c0\n"
        + "".join(f'c{i} ::= c{i + 1} c{i + 1} | ""\n' for i in far)
        + 'c1500 ::= "a"',
    }


def schemas() -> dict[str, Any]:
    """JSON schemas."""
    text = {"type": "string", "maxLength": 1000}
    return {
        "lists of lists": _nested(lambda s: {"type": "array", "items": s, "maxItems": 1000}, 12),
        "pairs of pairs": _nested(
            lambda s: {"type": "array", "items": s, "minItems": 2, "maxItems": 2}, 40
        ),
        "long text": {"type": "string", "minLength": 500_000, "maxLength": 100_000_000},
        "many properties": {"properties": {f"p{i}": text for i in range(1500)}},
        "many properties inside": {
            "properties": {"a": {"properties": {f"p{i}": text for i in range(1000)}}},
            "required": ["a"],
        },
        "choices of choices": _nested(lambda s: {"anyOf": [s, {"type": "null"}, s]}, 10),
        "all of choices": {
            "allOf": [
                {"anyOf": [{"properties": {f"a{i}{j}": {"const": j}}} for j in range(10)]}
                for i in range(8)
            ]
        },
        "references in a circle": {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        },
        "a reference to itself beside others": {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}},
        },
        "doubled references": {
            "$ref": "#/$defs/d0",
            "$defs": {
                **{f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)},
                "d40": {"type": "object"},
            },
        },
        "patterns of patterns": {"type": "string", "pattern": "^(((a{1,999}){1,999}){1,999})$"},
        "a pattern that looks far back": {"type": "string", "pattern": "^(a|b)*a(a|b){60}$"},
        "patterns at once": {
            "allOf": [{"type": "string", "pattern": f"a{{{i}}}b.*c{{{i}}}"} for i in range(1, 30)]
        },
        "huge bounds": {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
        "many values": {"enum": [f"value {i}" for i in range(15_000)]},
        "very deep": _nested(lambda s: {"properties": {"a": s}, "required": ["a"]}, 60),
        "too deep": _nested(lambda s: {"properties": {"a": s}, "required": ["a"]}, 200),
        "one of many": {
            "oneOf": [{"properties": {"k": {"const": i}}, "required": ["k"]} for i in range(400)]
        },
    }


def _nested(around: Callable[[JsonObject], JsonObject], depth: int) -> JsonObject:
    schema: JsonObject = {"type": "string"}
    for _ in range(depth):
        schema = around(schema)
    return schema


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """What each adds to a request."""
    for name, grammar in grammars().items():
        yield f"grammar: {name}", {"grammar": grammar}
    for name, schema in schemas().items():
        wanted = {"name": "x", "schema": schema}
        yield (
            f"schema: {name}",
            {"response_format": {"type": "json_schema", "json_schema": wanted}},
        )

"""Answers held to a schema or a grammar: what a random model writes fits."""

import json
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from shepherd.backends.base import Generation
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.sampling.guard import GrammarClock
from shepherd.errors import InvalidRequestError
from shepherd.events import CallbackEvent, FinishReason
from shepherd.messages import JsonObject, Message, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.support import PUP, Recorder, loaded
from tests.examples import few

EXACT: dict[str, Any] = {"flash_attention": "off", "cache_type_k": "f32", "cache_type_v": "f32"}
"""Numbers in full width: what is drawn does not depend on the batches."""

SHORT = {"type": "string", "maxLength": 5}
PERSON = {
    "$defs": {"word": SHORT},
    "type": "object",
    "properties": {
        "name": {"$ref": "#/$defs/word"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": SHORT, "minItems": 1, "maxItems": 2},
        "kind": {"const": 'p\n"q'},
        "size": {"anyOf": [{"type": "null"}, {"enum": [1, "a"]}]},
    },
    "required": ["age", "kind", "size"],
}
ALL_OF = {
    "allOf": [
        {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
        {"properties": {"b": {"type": "null"}}, "required": ["b"]},
    ]
}
PAIR = {"type": "array", "prefixItems": [{"type": "boolean"}, SHORT]}


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_llama(tmp_path_factory.mktemp("m") / "random.gguf", context=1024)


@pytest.fixture
async def backend(random_model: Path) -> AsyncGenerator[LlamaCppBackend]:
    async with loaded(random_model, **EXACT) as backend:
        yield backend


async def answer(
    backend: LlamaCppBackend, wanted: OutputFormat, seed: int = 0, **fields: Any
) -> Generation:
    """What the model answers, as wild as it can be."""
    session = Session(
        messages=[Message.user("hi")],
        sampling=Sampling(temperature=1.5, seed=seed, top_k=0, top_p=1.0),
        output_format=wanted,
        **fields,
    )
    return await backend.generate_from_session(session, Recorder())


def is_person(value: Any) -> bool:
    return (
        value.keys() <= {"name", "age", "tags", "kind", "size"}
        and isinstance(value["age"], int)
        and len(value.get("name", "")) <= 5
        and 1 <= len(value.get("tags", ["x"])) <= 2
        and all(isinstance(tag, str) and len(tag) <= 5 for tag in value.get("tags", []))
        and value["kind"] == 'p\n"q'
        and value["size"] in (None, 1, "a")
    )


CASES: list[tuple[JsonObject, Callable[[Any], bool]]] = [
    (PERSON, is_person),
    (ALL_OF, lambda v: isinstance(v["a"], bool) and v["b"] is None and len(v) == 2),
    (PAIR, lambda v: isinstance(v[0], bool) and len(v[1]) <= 5 and len(v) == 2),
    ({"type": "number"}, lambda v: isinstance(v, int | float)),
    ({"type": ["boolean", "null"]}, lambda v: v in (True, False, None)),
    ({"type": "object", "properties": {}}, lambda v: v == {}),
    ({"type": "string", "minLength": 6, "maxLength": 900}, lambda v: 6 <= len(v) <= 900),
    (
        {"type": "array", "items": {"enum": ["a", {"b": 1}]}, "maxItems": 900},
        lambda v: all(item in ("a", {"b": 1}) for item in v),
    ),
]


@pytest.mark.parametrize(("schema", "fits"), CASES)
async def test_a_random_model_writes_what_fits_the_schema(
    backend: LlamaCppBackend, schema: Any, fits: Any
) -> None:
    for seed in range(few(12, 4)):
        generation = await answer(backend, OutputFormat(schema), seed)
        assert generation.finish_reason is FinishReason.STOP
        assert fits(json.loads(generation.message.content))


async def test_any_object_parses_unless_it_was_cut(backend: LlamaCppBackend) -> None:
    ended = 0
    for seed in range(few(30, 10)):
        generation = await answer(backend, OutputFormat({"type": "object"}), seed)
        if generation.finish_reason is FinishReason.STOP:
            assert isinstance(json.loads(generation.message.content), dict)
            ended += 1
    assert ended > few(3, 0)


async def test_a_recursive_schema_ends_when_the_model_ends_it(backend: LlamaCppBackend) -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    for seed in range(few(10, 4)):
        generation = await answer(backend, OutputFormat(tree), seed)
        assert json.loads(generation.message.content).keys() <= {"next"}


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("path", [PUP, None])
async def test_reasoning_is_free_and_the_answer_fits(
    random_model: Path, path: Path | None, *, thinking: bool
) -> None:
    async with loaded(path or random_model, context_size=384) as backend:
        grammar = 'root ::= inner # root\ninner ::= "root" [root]{2} " é"'
        for wanted, form in (
            (OutputFormat(grammar=grammar), r"root[root]{2} é"),
            (OutputFormat({"enum": ["x", "y"]}), r'"[xy]"'),
        ):
            generation = await answer(backend, wanted, thinking=thinking)
            if generation.finish_reason is FinishReason.STOP:
                assert re.fullmatch(form, generation.message.content)
            else:  # a random model thinks until the context is full
                assert thinking
                assert path is None


async def test_a_tool_may_be_called_instead(backend: LlamaCppBackend) -> None:
    wanted, tools = OutputFormat({"enum": ["x"]}), [ToolSpec("now", "")]
    answers = [await answer(backend, wanted, seed, tools=tools) for seed in range(few(20, 8))]
    assert {bool(a.message.tool_calls) for a in answers} == {True, False}
    assert all(a.message.content in ("", '"x"') for a in answers)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (OutputFormat(grammar="root ::= ("), "expecting"),
        (OutputFormat(grammar="root ::= other"), "Undefined rule identifier 'other'"),
        (OutputFormat(grammar='start ::= "x"'), "no rule named 'root'"),
        (OutputFormat(grammar="root ::= root"), "no text matches"),
        (OutputFormat(grammar=""), "empty"),
        (OutputFormat(grammar='root ::= "\0"'), "zero"),
        (OutputFormat(grammar="root ::= " + "(" * 5_000 + '"x"' + ")" * 5_000), "nests"),
        (OutputFormat(grammar="x" * 300_000), "longer"),
        (OutputFormat(grammar='root ::= "x"{5000}'), "repetitions"),
        (OutputFormat({"type": "thing"}), "unknown type"),
        (OutputFormat({"$ref": "#/$defs/none"}), "'/\\$defs/none' does not exist"),
        (OutputFormat({"$ref": "https://example.com/x"}), "example.com/x' is not present"),
        (OutputFormat({"anyOf": []}), "anyOf"),
        (OutputFormat({"properties": {"a": 1}}), "'1' as a schema"),
        (OutputFormat({"allOf": [{"type": "string"}, {"type": "null"}]}), "incompatible types"),
        (
            OutputFormat({"type": "string", "minLength": 3, "maxLength": 2}),
            "is greater than maxLength",
        ),
        (OutputFormat({"anyOf": [{"$ref": "#"}]}), "no text matches"),
        (OutputFormat({"enum": ["x" * 300_000]}), "too large"),
    ],
)
async def test_what_is_wrong_is_refused_with_the_reason(
    backend: LlamaCppBackend, wanted: OutputFormat, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        await answer(backend, wanted)
    generation = await answer(backend, OutputFormat({"enum": [1]}))
    assert generation.message.content == "1"
    assert "grammar" not in capfd.readouterr().err


def test_a_grammar_that_takes_too_long_is_given_up() -> None:
    clock = GrammarClock()
    clock.seconds, clock.tokens = 60.0, 1000
    clock.check()  # slow models have slow grammars
    clock.tokens = 100
    with pytest.raises(InvalidRequestError, match="ambiguous"):
        clock.check()


async def test_a_grammar_that_leads_nowhere_is_a_normal_stop(backend: LlamaCppBackend) -> None:
    grammar = 'root ::= "x" dead | "z"\ndead ::= dead "a"'
    generation = await answer(backend, OutputFormat(grammar=grammar))
    assert generation.finish_reason is FinishReason.STOP
    assert generation.message.content in ("x", "z")


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= ("a"? "a"? "b"?)* "c"',
        'root ::= (("a" | "a" "a")+ "b")+ ',
        'root ::= ("a"?){60}',
        'root ::= "a" root "b" | ""',
        "root ::= [^x]* ",
        'root ::= ""',
    ],
)
async def test_awkward_grammars_do_no_harm(backend: LlamaCppBackend, grammar: str) -> None:
    for seed in range(3):
        generation = await answer(backend, OutputFormat(grammar=grammar), seed)
        assert generation.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)


async def test_what_does_not_hold_is_told(backend: LlamaCppBackend) -> None:
    schema: JsonObject = {"type": "array", "items": {"enum": [1]}, "uniqueItems": True}
    session = Session(messages=[Message.user("hi")], output_format=OutputFormat(schema))
    recorder = Recorder()
    await backend.generate_from_session(session, recorder, 20)
    told = [text for event, text, _ in recorder.events if event is CallbackEvent.SYSTEM]
    assert any("may not follow all of its JSON schema: uniqueItems" in text for text in told)
    with pytest.raises(InvalidRequestError, match="with strict: uniqueItems"):
        await answer(backend, OutputFormat(schema, strict=True))

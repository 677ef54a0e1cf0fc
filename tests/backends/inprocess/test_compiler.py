"""Where grammars are tried: nothing of it stays behind, nothing foreign runs in it."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from shepherd.backends.inprocess.lark import Rules, json_value
from shepherd.backends.inprocess.matcher import BYTES, GrammarCompiler, TokenBytes
from shepherd.backends.inprocess.schema import prepare
from shepherd.errors import BackendError, InvalidRequestError
from shepherd.messages import JsonObject
from tests.patience import PATIENCE

ENDLESS: JsonObject = {
    "type": "string",
    "allOf": [{"pattern": f"a{{{i}}}b.*c{{{i}}}"} for i in range(1, 30)],
}


async def vocabulary() -> TokenBytes:
    return BYTES


def written(schema: JsonObject) -> str:
    rules = Rules()
    return rules.text(rules.add("answer", json_value(prepare(schema).value)))


def children() -> set[str]:
    """The processes that run for this one; other tests may have left servers of theirs."""
    running: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            running.update((thread / "children").read_text().split())
    return running


async def test_a_trial_that_takes_too_long_is_ended_and_says_why() -> None:
    workshop, before = GrammarCompiler(vocabulary), children()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(InvalidRequestError, match="too large: preparing it takes more than"):
            await workshop.matcher(written(ENDLESS))
        assert (await workshop.matcher(written({"const": 1}))).is_accepting() is False
    assert children() <= before


async def test_a_trial_ends_with_who_asked_for_it() -> None:
    workshop, before = GrammarCompiler(vocabulary), children()
    task = asyncio.ensure_future(workshop.matcher(written(ENDLESS)))
    async with asyncio.timeout(PATIENCE):
        while children() <= before:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.cancelled()
    assert children() <= before


NAMES = ("pattern", "allOf", "multipleOf", "$ref")


async def test_properties_with_the_names_of_costly_keywords_need_no_trial() -> None:
    schema: JsonObject = {"properties": {name: {"type": "integer"} for name in NAMES}}
    matcher = await GrammarCompiler(vocabulary, "/nowhere").matcher(written(schema), own=True)
    assert matcher.try_consume_tokens(list(b'{"pattern": 1}')) == 14


@pytest.mark.parametrize(
    "costly",
    [
        {"type": "string", "pattern": "a+"},
        {"type": "integer", "multipleOf": 3},
        {"allOf": [{"minLength": 3}, {"type": "string"}]},
        {"patternProperties": {"a+": {"type": "integer"}}, "additionalProperties": False},
    ],
)
async def test_costly_keywords_are_tried(costly: JsonObject) -> None:
    schema: JsonObject = {"properties": {"pattern": costly}, "$defs": {}}
    with pytest.raises(BackendError, match="can't be tried"):
        await GrammarCompiler(vocabulary, "/nowhere").matcher(written(schema), own=True)


async def test_a_trial_runs_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("llguidance", "shepherd", "random", "json"):
        (tmp_path / f"{name}.py").write_text("open('pwned', 'w')")
    monkeypatch.chdir(tmp_path)
    matcher = await GrammarCompiler(vocabulary).matcher(written({"enum": ["a"]}))
    assert matcher.try_consume_tokens(list(b'"a"')) == 3
    assert not (tmp_path / "pwned").exists()

"""Calls that are enforced: models that would never write one by themselves must."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.errors import InvalidRequestError
from shepherd.events import CallbackEvent, FinishReason
from shepherd.messages import Message, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import Session, ToolChoice
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.support import LIST, Recorder, conversation, loaded
from tests.examples import few

WRITE = ToolSpec(
    "write_file",
    "Write a file.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "maxLength": 12},
            "mode": {"enum": ["a", "w", 'é"\\']},
            "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            "deep": {
                "type": "object",
                "properties": {"on": {"type": ["boolean", "null"]}},
                "required": ["on"],
            },
        },
        "required": ["path", "deep"],
    },
)
NOW = ToolSpec("now", "The time.")


def asking(choice: ToolChoice | None, seed: int = 0, *, thinking: bool = False) -> Session:
    """A session of few tokens that samples wildly."""
    return Session(
        messages=[Message.user("hi")],
        tools=[WRITE, NOW],
        sampling=Sampling(temperature=1.5, seed=seed, top_k=0, top_p=1.0, penalty_repeat=1.1),
        tool_choice=choice,
        thinking=thinking,
    )


def check_write(arguments: dict[str, object]) -> None:
    path, lines, deep = arguments["path"], arguments.get("lines", []), arguments["deep"]
    assert isinstance(path, str)
    assert 1 <= len(path) <= 12
    assert arguments.get("mode", "a") in ("a", "w", 'é"\\')
    assert isinstance(lines, list)
    assert isinstance(deep, dict)
    assert arguments.keys() <= {"path", "mode", "lines", "deep"}
    assert deep.keys() == {"on"}
    assert deep["on"] in (True, False, None)


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_llama(tmp_path_factory.mktemp("m") / "random.gguf", context=2048)


async def test_a_random_model_calls_the_named_tool_and_only_once(random_model: Path) -> None:
    async with loaded(random_model) as backend:
        for seed in range(few(25, 6)):
            session = asking(ToolChoice("write_file"), seed)
            generation = await backend.generate_from_session(session, Recorder())
            assert generation.finish_reason is FinishReason.TOOL_CALLS
            assert generation.message.content == ""
            (call,) = generation.message.tool_calls
            assert call.name == "write_file"
            check_write(call.arguments)


async def test_required_gives_calls_of_any_tool_and_parallel_can_be_refused(
    random_model: Path,
) -> None:
    counts: set[int] = set()
    names: set[str] = set()
    # A random model finds short names much likelier, if it weighs whole ones.
    async with loaded(random_model, parallel=2, jump_ahead=False) as backend:
        for seed in range(few(25, 6)):
            session = asking(ToolChoice(single=seed % 2 == 0), seed)
            generation = await backend.generate_from_session(session, Recorder(), 400)
            calls = generation.message.tool_calls
            if generation.finish_reason is not FinishReason.LENGTH:
                assert generation.finish_reason is FinishReason.TOOL_CALLS
                assert calls
            assert len(calls) <= 1 or seed % 2
            counts.add(len(calls))
            names |= {call.name for call in calls}
            for call in calls:
                if call.name == "write_file":
                    check_write(call.arguments)
    assert names == {"write_file", "now"}
    assert max(counts) > 1


@pytest.mark.parametrize("thinking", [False, True])
async def test_pup_calls_the_tool_that_it_is_told_to(*, thinking: bool) -> None:
    async with loaded() as backend:
        session = conversation("Good morning!", tools=True)
        session.thinking = thinking
        session.tool_choice = ToolChoice("list_directory")
        generation = await backend.generate_from_session(session, Recorder())
        assert [call.name for call in generation.message.tool_calls] == ["list_directory"]
        assert bool(generation.message.reasoning) is thinking
        session.add(generation.message)
        session.add(Message.tool(generation.message.tool_calls[0], "main.py"))
        session.tool_choice = None
        after = await backend.generate_from_session(session, Recorder())
        # the call was written as the template writes it, so all that was decoded came back; the
        # forced end `}` was not, because nothing was sampled after it
        before = generation.stats
        told = before.prompt_tokens + before.completion_tokens - 2
        assert thinking or after.stats.cached_tokens >= told


async def test_what_the_model_wants_to_call_stays_what_it_calls() -> None:
    async with loaded() as backend:
        free = conversation("List the files in src", tools=True)
        forced = conversation("List the files in src", tools=True)
        forced.tool_choice = ToolChoice()
        answers = [
            (await backend.generate_from_session(session, Recorder())).message
            for session in (free, forced)
        ]
    assert [(c.name, json.dumps(c.arguments)) for c in answers[0].tool_calls] == [
        (c.name, json.dumps(c.arguments)) for c in answers[1].tool_calls
    ]


async def test_what_cannot_be_enforced_is_refused_before_anything_runs(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with loaded() as backend:
        for tools, choice, reason in (
            ([], ToolChoice(), "no tools"),
            ([LIST], ToolChoice("other"), "'other'"),
            ([ToolSpec("t", "", {"type": "nonsense"})], ToolChoice(), "nonsense"),
        ):
            session = Session(messages=[Message.user("hi")], tools=tools, tool_choice=choice)
            with pytest.raises(InvalidRequestError, match=reason):
                await backend.generate_from_session(session, Recorder())
        assert (
            await backend.generate_from_session(conversation("Hello"), Recorder())
        ).message.content


async def test_a_random_model_calls_as_its_template_writes_elements(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    template = tiny.BOS_TEMPLATE.replace(
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}',
        "<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}"
        "<parameter={{ k }}>{{ v if v is string else v | tojson }}</parameter>\n{% endfor %}"
        "</function>{# knows tools #}",
    )
    path = tiny.write_llama(tmp_path_factory.mktemp("m") / "other.gguf", template=template)
    properties = {k: v for k, v in WRITE.parameters["properties"].items() if k != "path"}
    write = replace(WRITE, parameters={**WRITE.parameters, "properties": properties})
    write.parameters["required"] = ["deep"]
    async with loaded(path) as backend:
        for seed in range(few(25, 6)):
            session = asking(ToolChoice("write_file"), seed)
            session.tools = [write, NOW]
            generation = await backend.generate_from_session(session, Recorder(), 400)
            if generation.finish_reason is FinishReason.LENGTH:
                continue
            (call,) = generation.message.tool_calls
            check_write({"path": "p", **call.arguments})


async def test_a_model_whose_calls_are_not_understood_is_told_another_way(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    template = tiny.BOS_TEMPLATE.replace(
        '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
        "{{ c.function.arguments | tojson }}}\n</tool_call>",
        "(I use {{ c.function.name }} with {{ c.function.arguments.values() | join }} "
        "for the tools)",
    )
    path = tiny.write_llama(
        tmp_path_factory.mktemp("m") / "odd.gguf", template=template, context=2048
    )
    async with loaded(path) as backend:
        recorder = Recorder()
        session = asking(ToolChoice("now"))
        generation = await backend.generate_from_session(session, recorder)
        assert [call.name for call in generation.message.tool_calls] == ["now"]
        notices = [text for kind, text, _ in recorder.events if kind is CallbackEvent.SYSTEM]
        assert any("are not understood" in notice for notice in notices)

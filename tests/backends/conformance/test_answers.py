"""What an upstream says is what comes out, through the whole turn."""

import re
from pathlib import Path

import pytest

import shepherd
from shepherd.events import CallbackEvent, FinishReason
from shepherd.messages import Message, Role
from tests.backends.api.support import Events
from tests.backends.api.upstream import Upstream
from tests.backends.conformance.said import (
    AFTER,
    HELLO,
    ONE_CALL,
    THOUGHT,
    TWO_CALLS,
    UNICODE,
    Said,
    Understood,
)
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subject import Subject
from tests.backends.conformance.subjects.all import ELSEWHERE, SUBJECTS, WIRED, every, wired
from tests.backends.conformance.talk import Files, asking, goes_on, turn
from tests.backends.conformance.wired import AdapterSubject

CALLS = Said(calls=TWO_CALLS)

BACKEND = re.compile(r"^class (\w+)\((?:base\.)?(?:Forwarding)?Backend\)", re.MULTILINE)
ROOT = Path(shepherd.__file__).parent


def test_no_backend_is_forgotten() -> None:
    sources = (path.read_text("utf-8") for path in ROOT.rglob("*.py"))
    found = {name for text in sources for name in BACKEND.findall(text)}
    ours = {"ApiBackend", "ScriptedBackend", "LlamaCppBackend", "TensorRtBackend"}
    assert found == {*ours, *ELSEWHERE}
    documented = (ROOT.parent / "docs" / "providers.md").read_text("utf-8")
    assert "## Conformance" in documented


def test_what_is_not_tried_is_explained() -> None:
    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS)
    for subject in SUBJECTS:
        assert all(reason.strip() for reason in subject.lacks.values())
    always = {s for s in Scenario if all(s not in subject.lacks for subject in SUBJECTS)}
    assert always >= {
        *(Scenario.TEXT, Scenario.UNICODE, Scenario.CALL, Scenario.CANCEL, Scenario.OVERFLOW)
    }
    for subject in WIRED:
        assert set(subject.lacks) <= {Scenario.THINKING, Scenario.KEY, Scenario.MODEL}


@pytest.mark.parametrize("said", [HELLO, UNICODE], ids=["text", "unicode"])
@pytest.mark.parametrize("subject", every(Scenario.TEXT), ids=repr)
async def test_text(subject: Subject, said: Said) -> None:
    session, events = asking(), Events()
    async with subject.opened(said, AFTER) as room:
        outcome = await turn(session, room.backend, events)
        await goes_on(session, room.backend, AFTER.content)
    assert outcome.finish_reason is FinishReason.STOP
    assert Understood.of(session.messages[1]) == Understood(said.content)
    assert events.joined() == [
        (CallbackEvent.USER_PROMPT, "Go on.", ""),
        (CallbackEvent.CONTENT, said.content, ""),
        (CallbackEvent.STOP, "stop", ""),
    ]


@pytest.mark.parametrize("subject", every(Scenario.THINKING), ids=repr)
async def test_a_thought(subject: Subject) -> None:
    session, events = asking(thinking=True), Events()
    async with subject.opened(THOUGHT, AFTER) as room:
        await turn(session, room.backend, events)
        await goes_on(session, room.backend, AFTER.content)
    said = session.messages[1]
    assert (said.reasoning, said.content) == (THOUGHT.thought, THOUGHT.content)
    assert events.joined()[1:3] == [
        (CallbackEvent.THINKING, THOUGHT.thought, ""),
        (CallbackEvent.CONTENT, THOUGHT.content, ""),
    ]


async def _calls(subject: Subject, said: Said) -> None:
    session, events, files = asking(tools=True), Events(), Files()
    async with subject.opened(said, AFTER) as room:
        outcome = await turn(session, room.backend, events, files)
    assert outcome.finish_reason is FinishReason.STOP
    assert tuple((call.name, call.arguments) for call in files.ran) == said.calls
    roles = [Role.USER, Role.ASSISTANT, *[Role.TOOL] * len(said.calls), Role.ASSISTANT]
    assert [message.role for message in session.messages] == roles
    assert session.messages[1].tool_calls == tuple(files.ran)
    assert len({call.id for call in files.ran}) == len(files.ran)
    assert events.of(CallbackEvent.STOP) == ["tool_calls", "stop"]
    assert events.of(CallbackEvent.TOOL_RESULT) == [
        f"It says {arguments['path']}." for _, arguments in said.calls
    ]


@pytest.mark.parametrize("subject", every(Scenario.CALL), ids=repr)
async def test_one_call(subject: Subject) -> None:
    await _calls(subject, ONE_CALL)


@pytest.mark.parametrize("subject", every(Scenario.CALLS), ids=repr)
async def test_parallel_calls(subject: Subject) -> None:
    await _calls(subject, CALLS)


@pytest.mark.parametrize(
    "said",
    [HELLO, UNICODE, THOUGHT, ONE_CALL, CALLS],
    ids=["text", "unicode", "thought", "call", "calls"],
)
@pytest.mark.parametrize("subject", wired(Scenario.SDK), ids=repr)
async def test_the_vendors_own_client_reads_the_same(subject: AdapterSubject, said: Said) -> None:
    if said.thought and Scenario.THINKING in subject.lacks:
        said = said.silent
    asked = asking(tools=bool(said.calls), thinking=bool(said.thought))
    asked.add(Message.user("hi"))
    async with Upstream([subject.answer(said)] * 2) as up:
        backend = subject.backend_at(up.url)
        ours = await backend.generate_from_session(asked, Events())
        await backend.aclose()
        theirs = await subject.official(up.url)
    assert Understood.of(ours.message) == theirs
    assert theirs == Understood(said.content, said.thought, said.calls)
    assert up.requests[0].path == up.requests[1].path

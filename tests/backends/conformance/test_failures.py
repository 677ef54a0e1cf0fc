"""Refusals and failures in each vendor's own words."""

import pytest

from shepherd.errors import (
    AccessError,
    BackendError,
    BusyError,
    InvalidRequestError,
    UnreachableError,
)
from shepherd.events import CallbackEvent, FinishReason, Topic
from tests.backends.api.support import Events, FakeTime
from tests.backends.api.upstream import Reply, Upstream
from tests.backends.conformance.said import AFTER, HELLO, ONE_CALL
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subjects.all import wired
from tests.backends.conformance.talk import Files, asking, goes_on, shown, turn
from tests.backends.conformance.wired import KEY, AdapterSubject

MAX_ATTEMPTS = 4


async def refused(
    subject: AdapterSubject, error: type[BackendError], *replies: Reply
) -> tuple[BackendError, FakeTime]:
    """The error of a turn; it was told, and the session goes on when the upstream does."""
    time, session, events = FakeTime(), asking(), Events()
    async with Upstream([*replies, subject.answer(AFTER)]) as up:
        backend = subject.backend_at(up.url, time)
        with pytest.raises(error) as caught:
            await turn(session, backend, events)
        assert len(up.requests) == len(replies)
        await goes_on(session, backend, AFTER.content)
        await backend.aclose()
    subject.check_all(up.requests)
    assert [
        (name, text) for event, text, name, _ in events.all if event is CallbackEvent.ERROR
    ] == [(type(caught.value).__name__, str(caught.value))]
    assert shown(events) == ""
    assert "acme" in str(caught.value)
    assert KEY not in str(caught.value)
    return caught.value, time


@pytest.mark.parametrize("subject", wired(Scenario.KEY), ids=repr)
async def test_a_wrong_key_is_told_at_once(subject: AdapterSubject) -> None:
    error, time = await refused(subject, AccessError, subject.wrong_key())
    assert time.slept == []
    assert "api-key" in str(error)


@pytest.mark.parametrize("subject", wired(Scenario.MODEL), ids=repr)
async def test_an_unknown_model_is_told_at_once(subject: AdapterSubject) -> None:
    error, time = await refused(subject, InvalidRequestError, subject.unknown_model())
    assert time.slept == []
    assert isinstance(error, InvalidRequestError)
    assert error.param == "model"
    assert subject.model in str(error)


@pytest.mark.parametrize("subject", wired(Scenario.RETRY), ids=repr)
async def test_what_fails_for_ever_is_told_after_some_tries(subject: AdapterSubject) -> None:
    await refused(subject, UnreachableError, *[subject.down()] * MAX_ATTEMPTS)
    await refused(subject, UnreachableError, *[Reply(cut_after=-1)] * MAX_ATTEMPTS)
    await refused(subject, UnreachableError, *[subject.reply(b"")] * MAX_ATTEMPTS)
    tries = 1 if subject.fails_for_good else MAX_ATTEMPTS
    await refused(subject, UnreachableError, *[subject.reply(subject.failing())] * tries)


@pytest.mark.parametrize("subject", wired(Scenario.RETRY), ids=repr)
async def test_who_is_busy_is_asked_again_when_it_says_so(subject: AdapterSubject) -> None:
    time, events, session = FakeTime(), Events(), asking()
    async with Upstream([subject.busy(), subject.answer(HELLO), subject.answer(AFTER)]) as up:
        backend = subject.backend_at(up.url, time)
        outcome = await turn(session, backend, events)
        await goes_on(session, backend, AFTER.content)
        await backend.aclose()
    assert outcome.finish_reason is FinishReason.STOP
    assert shown(events) == HELLO.content
    assert len(time.slept) == 1
    assert subject.busy_seconds <= time.slept[0] <= subject.busy_seconds + 0.5
    notices = [text for _, text, name, _ in events.all if name == Topic.NOTICE]
    assert len(notices) == 1
    assert "acme" in notices[0]


@pytest.mark.parametrize("subject", wired(Scenario.RETRY), ids=repr)
async def test_every_passing_failure_in_a_row(subject: AdapterSubject) -> None:
    """In the middle of a turn as at its beginning, and the user sees nothing of it but pauses."""
    passing = [subject.down(), Reply(cut_after=-1), subject.reply(subject.failing())]
    passing = passing[: 2 if subject.fails_for_good else 3]
    replies = [*passing, subject.answer(ONE_CALL), *passing, subject.answer(AFTER)]
    session, events, files = asking(tools=True), Events(), Files()
    async with Upstream(replies) as up:
        backend = subject.backend_at(up.url)
        await turn(session, backend, events, files)
        await backend.aclose()
    subject.check_all(up.requests)
    assert len(files.ran) == 1
    assert shown(events) == ONE_CALL.content + AFTER.content
    told = {name for event, _, name, _ in events.all if event is CallbackEvent.SYSTEM}
    assert told <= {Topic.NOTICE}


@pytest.mark.parametrize("subject", wired(Scenario.RETRY), ids=repr)
async def test_who_stays_busy_is_named(subject: AdapterSubject) -> None:
    error, time = await refused(subject, BusyError, *[subject.busy()] * MAX_ATTEMPTS)
    assert isinstance(error, BusyError)
    assert error.retry_after == subject.busy_seconds
    assert len(time.slept) == MAX_ATTEMPTS - 1


@pytest.mark.parametrize("subject", wired(Scenario.MALFORMED), ids=repr)
async def test_an_error_in_the_middle_ends_the_answer(subject: AdapterSubject) -> None:
    """What came stays, nothing is asked again, the reason is told, and the session goes on."""
    session, events = asking(), Events()
    begun = b"".join(subject.frames(HELLO)[: subject.open_until]) + subject.failing()
    async with Upstream([subject.reply(begun), subject.answer(AFTER)]) as up:
        backend = subject.backend_at(up.url)
        outcome = await turn(session, backend, events)
        await goes_on(session, backend, AFTER.content)
        await backend.aclose()
    subject.check_all(up.requests)
    assert len(up.requests) == 2
    assert outcome.finish_reason is FinishReason.ERROR
    assert session.messages[1].content == HELLO.content
    (warning,) = [text for _, text, name, _ in events.all if name == Topic.WARNING]
    assert warning.startswith("The answer was cut off: ")
    assert len(warning) > 30

"""Answers that are none, or none of what was asked for."""

import gzip
from collections.abc import Iterable

import pytest

from shepherd.backends.base import Generation
from shepherd.errors import AccessError, BackendError, InvalidRequestError, UnreachableError
from tests.backends.api.support import Events
from tests.backends.api.upstream import Reply, Upstream
from tests.backends.conformance.reading import read
from tests.backends.conformance.said import HELLO
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subjects.all import wired
from tests.backends.conformance.talk import question, shown
from tests.backends.conformance.wired import KEY, AdapterSubject
from tests.examples import some

EVERY = pytest.mark.parametrize("subject", wired(Scenario.MALFORMED), ids=repr)

PAGE = "<!DOCTYPE html><html><head><title>Bad gateway</title></head><body>x</body></html>"
MEBIBYTE = b"x" * 2**20


def check_told(text: str, events: Events) -> None:
    """An error that can be shown, and before which nothing was."""
    assert shown(events) == ""
    assert "acme" in text
    assert KEY not in text
    assert len(text.encode()) < 1200


async def outcomes(
    subject: AdapterSubject, replies: Iterable[Reply]
) -> list[tuple[Generation | BackendError, int]]:
    """What comes of each reply, given again and again, and how often it was asked for."""
    found: list[tuple[Generation | BackendError, int]] = []
    playing: list[Reply] = []
    async with Upstream(lambda _: playing[-1]) as up:
        backend = subject.backend_at(up.url)
        for reply in replies:
            playing.append(reply)
            before, events = len(up.requests), Events()
            try:
                got = await backend.generate_from_session(question(), events)
            except BackendError as error:
                got = error
                check_told(str(error), events)
            found.append((got, len(up.requests) - before))
        await backend.aclose()
    return found


@EVERY
async def test_a_web_page(subject: AdapterSubject) -> None:
    """It is no answer under any status and any name; nobody is shown its markup."""
    html = {"content-type": "text/html; charset=utf-8"}
    replies = [
        Reply(PAGE, 200, html),
        Reply(PAGE, 404, html),
        Reply(PAGE, 502, html),
        subject.reply(PAGE),
        Reply(PAGE, 403, html),
    ]
    found = await outcomes(subject, replies)
    kinds = (
        *(InvalidRequestError, InvalidRequestError, UnreachableError, UnreachableError),
        AccessError,
    )
    assert tuple(type(got) for got, _ in found) == kinds
    assert [asked for _, asked in found] == [1, 1, 4, 4, 1]
    assert all("<" not in str(got) for got, _ in found)


@EVERY
async def test_the_answer_under_another_name(subject: AdapterSubject) -> None:
    """Content types are lost and replaced on the way; the answer is what it is."""
    stream = subject.stream(HELLO)
    kinds = ["text/plain", "application/json", "application/octet-stream", "nonsense", ""]
    replies = [Reply([stream], headers={"content-type": kind}) for kind in kinds]
    squeezed = gzip.compress(stream)
    names = {"content-type": subject.content_type, "content-encoding": "gzip"}
    found = await outcomes(subject, [*replies, Reply([squeezed], headers=names)])
    for got, asked in found:
        assert isinstance(got, Generation)
        assert (got.message.content, asked) == (HELLO.content, 1)


@EVERY
async def test_an_error_with_status_200(subject: AdapterSubject) -> None:
    """As JSON, under any name: what it says is told."""
    refusal = subject.unknown_model()
    kinds = ["application/json", "text/event-stream", "text/plain", "application/x-ndjson"]
    replies = [Reply(refusal.body, headers={"content-type": kind}) for kind in kinds]
    for got, _ in await outcomes(subject, replies):
        assert isinstance(got, BackendError)
        assert subject.model in str(got).removeprefix(f"acme ({subject.model})")


@EVERY
async def test_nothing_or_garbage_under_every_status(subject: AdapterSubject) -> None:
    bodies = [b"", b"{", b"\xff\xfe\0", b"null", b'{"error":null}', b'{"error":"\\ud83d"}']
    statuses = [204, 400, 401, 404, 429, 500]
    replies = [Reply(body, status) for status in statuses for body in bodies]
    replies += [Reply(b"[" * 100_000, 400), Reply(b'{"error":' * 100_000, 500)]
    replies += [Reply(MEBIBYTE, 400), subject.reply(b""), subject.reply(b"\0" * 100)]
    replies += [Reply([b"no gzip"], headers={"content-encoding": "gzip"})]
    for got, asked in await outcomes(subject, some(replies, repr(subject), 16)):
        assert isinstance(got, BackendError)
        assert asked in (1, 4)


@EVERY
async def test_an_event_without_end(subject: AdapterSubject) -> None:
    """What came before it stays, and memory does not fill up."""
    begun = list(subject.frames(HELLO)[: subject.open_until])
    outcome = await read(subject, question(), [*begun, b'data: {"', *[MEBIBYTE] * 17])
    assert "more than" in outcome.broken
    assert outcome.generation.message.content == HELLO.content

"""The API backend against a scripted upstream."""

import asyncio
import json

import pytest

from shepherd.backends.api.backend import ApiBackend
from shepherd.errors import (
    AccessError,
    BusyError,
    ContextFullError,
    InvalidRequestError,
    UnreachableError,
)
from shepherd.events import CallbackEvent, Event, FinishReason, Stats, Topic
from shepherd.messages import ToolCall
from shepherd.sampling import Sampling
from shepherd.version import __version__
from tests.backends.api.plain_adapter import LinesAdapter
from tests.backends.api.support import LIST, Events, FakeTime, asking, backend_at
from tests.backends.api.upstream import Reply, Upstream

STOP = {"stop": "stop"}
HELLO = Reply.sse([{"text": "Hel"}, {"text": "lo"}, {"usage": {"prompt_tokens": 11}}, STOP])
OVERFLOW = (
    "This model's maximum context length is 4096 tokens. However, you requested {} tokens "
    "({} in the messages, {} in the completion). Please reduce the length."
)


def overflow(prompt: int, asked: int) -> Reply:
    return Reply({"error": {"message": OVERFLOW.format(prompt + asked, prompt, asked)}}, 400)


async def test_an_answer_and_the_request_for_it() -> None:
    async with Upstream([HELLO]) as up:
        backend, events = backend_at(up), Events()
        generation = await backend.generate_from_session(asking(), events, 99)
        await backend.aclose()
    assert generation.message.content == "Hello"
    assert generation.finish_reason is FinishReason.STOP
    kinds = [event for event, *_ in events.all if event is not CallbackEvent.CONTENT]
    assert kinds == [CallbackEvent.STATS, CallbackEvent.STOP]
    request = up.requests[0]
    assert (request.method, request.path) == ("POST", "/chat")
    assert request.json["max_tokens"] == 99
    assert request.headers["user-agent"] == f"shepherd/{__version__}"
    assert (request.headers["x-key"], request.headers["x-more"]) == ("secret-key-1234", "y")
    assert request.headers["accept-encoding"] == "identity"


async def test_prefill_asks_nobody_and_finds_wrong_parameters() -> None:
    async with Upstream() as up:
        backend = backend_at(up)
        prefilled = await backend.prefill_session(asking(text="word " * 100), Events())
        assert 60 < prefilled.prompt_tokens < 300
        wrong = asking()
        wrong.sampling = Sampling(mirostat=2)
        with pytest.raises(InvalidRequestError):
            await backend.prefill_session(wrong, Events())
        await backend.aclose()
    assert up.connections == 0


async def test_usage_becomes_stats_and_teaches_the_estimator() -> None:
    usage = {"prompt_tokens": 1000, "cached_tokens": 600, "completion_tokens": 7}
    async with Upstream([Reply.sse([{"text": "x"}, STOP, {"usage": usage}])]) as up:
        backend, events, session = backend_at(up), Events(), asking()
        generation = await backend.generate_from_session(session, events)
        assert await backend.count_session_tokens(session) == 1000
        await backend.aclose()
    stats = generation.stats
    assert (stats.prompt_tokens, stats.cached_tokens, stats.completion_tokens) == (1000, 600, 7)
    assert (stats.context_used, stats.context_size) == (1007, 4096)
    assert json.loads(events.of(CallbackEvent.STATS)[0])["cached_tokens"] == 600


async def test_connections_are_used_again() -> None:
    async with Upstream([HELLO] * 3) as up:
        backend = backend_at(up)
        for _ in range(3):
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert (len(up.requests), up.connections) == (3, 1)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, {"error": {"message": "bad key secret-key-1234"}}, AccessError),
        (403, {"message": "forbidden"}, AccessError),
        (404, {"error": "model m1 not found"}, InvalidRequestError),
        (400, {"error": {"message": "temperature is wrong"}}, InvalidRequestError),
        (422, {"detail": [{"msg": "field required"}]}, InvalidRequestError),
        (307, {}, InvalidRequestError),
        (429, {"error": {"message": "no money", "code": "insufficient_quota"}}, AccessError),
    ],
)
async def test_refusals_are_not_repeated(
    status: int, body: dict[str, object], error: type[Exception]
) -> None:
    async with Upstream([Reply(body, status), HELLO]) as up:
        backend = backend_at(up)
        with pytest.raises(error) as caught:
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert len(up.requests) == 1
    assert "acme" in str(caught.value)
    assert "secret-key-1234" not in str(caught.value)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_passing_failures_are_repeated(status: int) -> None:
    time = FakeTime()
    async with Upstream([Reply("busy", status), Reply(cut_after=-1), HELLO]) as up:
        backend = backend_at(up, time=time)
        generation = await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert generation.message.content == "Hello"
    assert time.slept == [0.5, 1.0]


async def test_what_keeps_failing_is_told() -> None:
    async with Upstream(lambda _: Reply("x", 500)) as up:
        backend = backend_at(up)
        with pytest.raises(UnreachableError, match="acme"):
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert len(up.requests) == 4
    async with Upstream(lambda _: Reply("x", 429, {"retry-after": "7"})) as up:
        backend = backend_at(up)
        with pytest.raises(BusyError) as busy:
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert busy.value.retry_after == 7


async def test_nobody_waits_for_hours() -> None:
    time = FakeTime()
    async with Upstream([Reply("x", 429, {"retry-after": "3600"}), HELLO]) as up:
        backend = backend_at(up, time=time)
        with pytest.raises(BusyError) as busy:
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert busy.value.retry_after == 3600
    assert time.slept == []


async def test_a_long_pause_is_told_and_can_be_ended() -> None:
    slow = Reply("x", 503, {"retry-after-ms": "20000"})
    async with Upstream([slow, HELLO]) as up:
        time, events = FakeTime(), Events(stop_at=0)
        backend = backend_at(up, time=time)
        generation = await backend.generate_from_session(asking(), events)
        await backend.aclose()
    assert events.all[0][2] == Topic.NOTICE
    assert "fails (503: x). Trying again in 20 s." in events.all[0][1]
    assert (len(events.all), len(up.requests), time.slept) == (1, 1, [])
    assert generation.finish_reason is FinishReason.CANCELLED


async def test_nothing_is_repeated_once_the_answer_has_begun() -> None:
    begun = Reply.sse([{"text": "Once upon"}], done=False)
    async with Upstream([begun, HELLO]) as up:
        backend, events = backend_at(up), Events()
        generation = await backend.generate_from_session(asking(), events)
        await backend.aclose()
    assert len(up.requests) == 1
    assert generation.message.content == "Once upon"
    assert generation.finish_reason is FinishReason.ERROR
    assert "cut off" in events.of(CallbackEvent.SYSTEM)[0]
    assert events.of(CallbackEvent.ERROR) == []


async def test_an_error_in_the_stream() -> None:
    error = {"error": {"message": "overloaded secret-key-1234"}, "status": 529}
    async with Upstream([Reply.sse([error]), Reply.sse([{"text": "A"}, error])]) as up:
        backend, events = backend_at(up), Events()
        generation = await backend.generate_from_session(asking(), events)
        await backend.aclose()
    assert len(up.requests) == 2
    assert generation.message.content == "A"
    assert generation.finish_reason is FinishReason.ERROR
    assert "overloaded …" in events.of(CallbackEvent.SYSTEM)[0]


async def test_a_full_context_is_told_in_numbers() -> None:
    async with Upstream([overflow(5000, 100)]) as up:
        backend, session = backend_at(up), asking()
        with pytest.raises(ContextFullError) as full:
            await backend.generate_from_session(session, Events())
        assert await backend.count_session_tokens(session) == 5000
        await backend.aclose()
    assert (full.value.tokens_over, full.value.prompt_tokens) == (1004, 5000)
    assert len(up.requests) == 1


async def test_asking_for_less_may_be_enough() -> None:
    async with Upstream([overflow(3000, 8000), HELLO]) as up:
        backend = backend_at(up)
        generation = await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert generation.message.content == "Hello"
    assert up.requests[1].json["max_tokens"] == 1096
    async with Upstream([overflow(3000, 8000), overflow(3000, 1096), HELLO]) as up:
        backend = backend_at(up)
        with pytest.raises(ContextFullError):
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert len(up.requests) == 2


async def test_an_overflow_tells_an_unknown_window() -> None:
    async with Upstream([overflow(5000, 100)]) as up:
        backend = backend_at(up, context_size=0)
        with pytest.raises(ContextFullError):
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert backend.info.context_size == 4096
    assert "full" in backend.window.source


@pytest.mark.parametrize("how", ["callback", "task", "error"])
async def test_cancelling_closes_the_connection(how: str) -> None:
    never, first = asyncio.Event(), asyncio.Event()
    events = Events(stop_at=1 if how == "callback" else -1)

    def callback(event: Event) -> bool:
        if how == "error" and first.is_set():
            raise ZeroDivisionError
        return events(event)

    async with Upstream([Reply.sse([{"text": "one"}, first, {"text": "two"}, never])]) as up:
        backend = backend_at(up)
        task = asyncio.create_task(backend.generate_from_session(asking(), callback))
        while not events.all:
            await asyncio.sleep(0.001)
        if how == "task":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "error":
            first.set()
            with pytest.raises(ZeroDivisionError):
                await task
        else:
            first.set()
            generation = await task
            assert generation.finish_reason is FinishReason.CANCELLED
            assert generation.message.content == "onetwo"
            assert len(events.all) == 2
        await asyncio.wait_for(up.requests[0].hung_up.wait(), 30)
        await backend.aclose()


async def test_a_call_goes_through_and_lines_are_understood() -> None:
    call = {"key": 0, "id": "c1", "name": "list_directory", "arguments": '{"path": "src"}'}
    events = Events()
    async with Upstream([Reply.ndjson([{"call": call}, {"stop": "tool_calls"}])]) as up:
        backend = backend_at(up, LinesAdapter())
        generation = await backend.generate_from_session(asking(LIST), events)
        await backend.aclose()
    assert generation.message.tool_calls == (ToolCall("c1", "list_directory", {"path": "src"}),)
    assert generation.finish_reason is FinishReason.TOOL_CALLS
    assert [e[0] for e in events.all][-2:] == [CallbackEvent.STOP, CallbackEvent.TOOL_CALL]


async def test_what_came_before_a_broken_frame_stays() -> None:
    """All of it in one read of the network."""
    events = [b'data: {"text": "%s"}\n\n' % text for text in (b"Hel", b"lo, ", b"you")]
    frames = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    headers = {"transfer-encoding": "chunked"}
    reply = Reply([frames + b"no size\r\n"], headers=headers, until_close=True)
    async with Upstream([reply]) as up:
        backend = backend_at(up)
        generation = await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert generation.message.content == "Hello, you"
    assert generation.finish_reason is FinishReason.ERROR


async def test_a_server_that_does_not_stream() -> None:
    async with Upstream([Reply({"text": "whole", "stop": "stop"})]) as up:
        backend = backend_at(up)
        generation = await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert generation.message.content == "whole"


async def test_a_web_page_is_no_answer() -> None:
    page = Reply("<html><title>Chat</title></html>", headers={"content-type": "text/html"})
    async with Upstream([page, HELLO]) as up:
        backend = backend_at(up)
        with pytest.raises(InvalidRequestError, match="base URL"):
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert len(up.requests) == 1


async def test_nobody_listens() -> None:
    async with Upstream() as up:
        pass
    backend: ApiBackend = backend_at(up)
    with pytest.raises(UnreachableError, match="can't be reached"):
        await backend.generate_from_session(asking(), Events())
    await backend.aclose()
    assert not backend.alive


LASTING = [
    (429, "Rate limit reached on requests per day (RPD): Limit 200, Used 200, Requested 1."),
    (429, "Rate limit exceeded: free-models-per-day"),
    (429, "you've reached your weekly usage limit, upgrade for higher limits"),
    (429, "You have exceeded your monthly included credits quota"),
    (429, "Quota exceeded for metric: free_tier_requests, limit: 0, model: gemini-2.5-pro"),
    (503, "hourly usage limit reached"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "text"), LASTING)
async def test_limits_that_a_pause_does_not_cure_are_told_at_once(status: int, text: str) -> None:
    async with Upstream([Reply({"error": {"message": text}}, status), HELLO]) as up:
        backend = backend_at(up)
        with pytest.raises(BusyError, match="lasts for an hour or longer"):
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert len(up.requests) == 1


async def test_geminis_daily_quota_is_known_by_its_name() -> None:
    detail = {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
    }
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    error = {"code": 429, "message": "You exceeded your quota.", "details": [detail, retry]}
    async with Upstream([Reply({"error": error}, 429), HELLO]) as up:
        backend = backend_at(up)
        with pytest.raises(BusyError, match="lasts for an hour or longer"):
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()


@pytest.mark.parametrize(
    "text",
    [
        "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
        "This request would exceed your rate limit of 40,000 input tokens per minute.",
        "Too many requests, slow down",
    ],
)
async def test_limits_of_a_minute_are_waited_for(text: str) -> None:
    async with Upstream([Reply({"error": {"message": text}}, 429), HELLO]) as up:
        backend = backend_at(up)
        assert (await backend.generate_from_session(asking(), Events())).message.content
        await backend.aclose()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 34000"),
        (413, "Request too large: tokens per minute (TPM): Limit 6000, Requested 10000"),
    ],
)  # fmt: skip
async def test_a_request_of_more_tokens_than_a_minute_has_must_become_smaller(
    status: int, text: str
) -> None:
    body = {"error": {"message": text, "code": "rate_limit_exceeded"}}
    async with Upstream([Reply(body, status), HELLO]) as up:
        backend = backend_at(up, context_size=128_000)
        with pytest.raises(ContextFullError) as caught:
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert len(up.requests) == 1
    assert caught.value.tokens_over == 4000
    assert backend.info.context_size in (30_000, 6000)


@pytest.mark.parametrize(
    "text",
    [
        "model requires more system memory (5.6 GiB) than is available (3.2 GiB)",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "llama runner process has terminated: failed to allocate buffer",
    ],
)
async def test_a_server_without_memory_is_not_asked_again(text: str) -> None:
    async with Upstream([Reply({"error": text}, 500), HELLO]) as up:
        backend = backend_at(up)
        with pytest.raises(UnreachableError, match="not enough memory"):
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert len(up.requests) == 1


@pytest.mark.parametrize(
    ("detail", "says"),
    [
        ([{"loc": ["body", "messages", 0, "role"], "msg": "Field required"}],
         "messages.0.role: Field required"),
        ([{"loc": ["query", "k"], "msg": "Too long"}, {"loc": ["body"], "msg": "Not JSON"}],
         "query.k: Too long: Not JSON"),
    ],
)  # fmt: skip
async def test_the_fields_of_pydantics_errors_are_shown(detail: object, says: str) -> None:
    for body in ({"detail": detail}, {"object": "error", "message": {"detail": detail}}):
        async with Upstream([Reply(body, 422)]) as up:
            backend = backend_at(up)
            with pytest.raises(InvalidRequestError, match=says):
                await backend.generate_from_session(asking(), Events())
            await backend.aclose()


@pytest.mark.parametrize(
    ("tokens", "seconds", "speed"), [(300, 0.001, 0), (2, 1.0, 0), (300, 3.0, 100), (4, 0.1, 40)]
)
def test_a_speed_is_told_where_it_means_something(
    tokens: int, seconds: float, speed: float
) -> None:
    stats = Stats(completion_tokens=tokens, decode_seconds=seconds)
    assert stats.decode_speed == pytest.approx(speed)

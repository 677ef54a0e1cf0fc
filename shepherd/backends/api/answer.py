"""Turns deltas into the events of a generation, and into the message for the history."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

import httpx
from msgspec import structs

from shepherd import errors, events, json_text, messages, sampling
from shepherd.backends.api import stream
from shepherd.backends.api.adapter import Adapter
from shepherd.backends.api.calls import CallCollector, CollectedCalls, as_text
from shepherd.backends.api.framing import COMMENT, StreamDecoder, StreamEvent, decoder_for
from shepherd.backends.api.history import SurrogateJoiner, replace_surrogates, sanitize_object
from shepherd.backends.api.http.client import reason
from shepherd.backends.base import Generation
from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.style import GENERIC, OutputStyle
from shepherd.backends.output.text import ContentTokens
from shepherd.session import Session

FENCES_ONLY = OutputStyle("native", think=(), marked=False, separator="")
"""The text of an API with separate calls and thoughts: only code is detected."""


class Answer:
    """Collects one answer and reports it; `cancelled` once the callback has returned False.

    `started` is set with the first part of the answer; after that the request can't be repeated.
    `usage` are the API's counts so far, `error` is the first error in the stream.
    """

    def __init__(
        self,
        adapter: Adapter,
        session: Session,
        callback: events.EventCallback,
        logprobs: list[sampling.TokenLogprob] | None = None,
        *,
        prompted_tools: bool = False,
        prompt_tokens: int = 0,
    ) -> None:
        """`logprobs` receives those of the content's tokens, before its events are sent.

        `prompted_tools`: the prompt asks the model to print calls. `prompt_tokens` are estimated.
        """
        self.cancelled = False
        self.started = False
        self.usage = stream.Usage()
        self.error: stream.Error | None = None
        self._prompt_tokens = prompt_tokens
        self._waits = False  # the prompt waits for others, as a comment has said
        self._calls = CallCollector()
        self._extra: messages.JsonObject = {}
        """Data that the API needs back with the message."""
        self._stop: stream.Stop | None = None
        self._adapter = adapter.name
        self._callback = callback
        # what the session tells of the answer: which calls, stop strings and new ids are valid
        self._tools: Sequence[messages.ToolSpec] = tuple(session.callable_tools)
        self._stops = session.sampling.stop or ()
        self._used_ids = {call.id for m in session.messages for call in m.tool_calls}
        prints_calls = adapter.prints_calls or prompted_tools
        style = GENERIC if prints_calls else FENCES_ONLY
        self._output = OutputFilter(style, self._tools if prints_calls else ())
        # the pieces of the message, as they were sent
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._text_joiner, self._thought_joiner = SurrogateJoiner(), SurrogateJoiner()
        self._logprobs = logprobs
        self._content_tokens = None if logprobs is None else ContentTokens()

    @property
    def ended(self) -> bool:
        """Whether further deltas are ignored."""
        return self.cancelled or self.error is not None

    def take(self, deltas: Iterable[stream.Delta]) -> None:
        """Process these deltas; neighbouring text becomes one event.

        After the delta that ends the answer, only the usage counts.
        """
        text, only_usage_counts = "", False
        for delta in deltas:
            if isinstance(delta, stream.Usage):
                self._take_one(delta)
            elif only_usage_counts:
                continue
            # with log probabilities each text is taken alone, as its tokens belong to it
            elif isinstance(delta, stream.Text) and self._content_tokens is None:
                text += delta.text
            else:
                self._take_text(text)
                text = ""
                if not self.cancelled:
                    self._take_one(delta)
                only_usage_counts = self.ended
        self._take_text(text)

    def take_comment(self, text: str) -> None:
        """Tell the place at which a Shepherd lets the prompt wait, and the end of that wait."""
        total = self._prompt_tokens
        place = None if self.started else events.PrefillProgress.waiting(text, total)
        if place or self._waits:
            self._waits = place is not None
            self._send(place or events.PrefillProgress(0, total))

    def complete(self, stats: events.Stats, broken: str = "") -> Generation:
        """Send the held text, a warning if needed, STATS, STOP and the calls.

        `broken` says why the answer ended too early, "" if it did not.
        """
        reason = self._reason_before_calls(broken)
        truncated = reason is not events.FinishReason.STOP
        if self._content_tokens is not None:
            self._content_tokens.finish()
        self._show([events.Thinking(self._thought_joiner.finish())])
        self._show(self._output.feed(self._text_joiner.finish()))
        self._show(self._output.finish(truncated=truncated))
        printed = self._output.result
        native = self._calls.finish(self._adapter, self._tools, self._used_ids, truncated=truncated)
        # calls in the API's own form count; those in the text only if there are no others
        calls = native.calls if self._calls else printed.tool_calls
        self._show_uncalled(native, printed.tool_calls if self._calls else ())
        # a problem makes the turn ask again; an answer with calls goes on with them instead
        problems = () if calls else (*native.problems, *printed.problems)
        if calls and reason is events.FinishReason.STOP:
            reason = events.FinishReason.TOOL_CALLS
        self._warn(reason, broken, native.cut)
        self._send(stats)
        self._send(events.Stop(reason))
        for call in calls:
            self._send(call)
        if self.cancelled:
            reason = events.FinishReason.CANCELLED
        logprobs = None if self._logprobs is None else tuple(self._logprobs)
        message, stop_string = self.message(calls), self._stop_string()
        return Generation(message, reason, stats, problems, logprobs, broken, stop_string)

    def message(self, calls: tuple[messages.ToolCall, ...] = ()) -> messages.Message:
        """The message so far."""
        message = messages.Message.assistant(
            "".join(self._content), "".join(self._reasoning), calls
        )
        extra = sanitize_object(self._extra)
        return structs.replace(message, extra={self._adapter: extra}) if extra else message

    def _take_one(self, delta: stream.Delta) -> None:
        """Process one delta; of several stops or errors the first counts."""
        match delta:
            case stream.Text(text=text, logprobs=logprobs):
                if self._content_tokens is not None:
                    for token in logprobs:
                        self._content_tokens.add(token)
                self._take_text(text)
            case stream.Thinking(text=text):
                self.started = self.started or bool(text)
                self._show([events.Thinking(self._thought_joiner.feed(text))])
            case stream.Call():
                self.started = True
                self._calls.take(delta)
            case stream.Extra(value=value):
                _append(self._extra, value)
            case stream.Usage():
                self.usage = _updated(self.usage, delta)
            case stream.Stop():
                self._stop = self._stop or delta
            case stream.Error():
                self.error = self.error or delta

    def _reason_before_calls(self, broken: str) -> events.FinishReason:
        """Why the answer ended, never TOOL_CALLS: an API names them for calls that we reject too.

        `broken` says why the stream was cut off, "" if it was not.
        """
        if self.cancelled:
            return events.FinishReason.CANCELLED
        if broken:
            return events.FinishReason.ERROR
        reason = self._stop.reason if self._stop else events.FinishReason.STOP
        return events.FinishReason.STOP if reason is events.FinishReason.TOOL_CALLS else reason

    def _stop_string(self) -> str:
        """The stop string that ended the answer; what the request did not send is not one."""
        if self.cancelled or self._stop is None or self._stop.stop_string not in self._stops:
            return ""
        return self._stop.stop_string

    def _show_uncalled(self, native: CollectedCalls, printed: Sequence[messages.ToolCall]) -> None:
        """Show calls that are not run as text, so that nothing is lost.

        These are the `native` calls that were rejected, and the `printed` ones of an answer that
        has native calls too; a printed copy of a native call says nothing new.
        """
        called = [(call.name, call.arguments) for call in native.calls]
        texts = [
            as_text(call.name, call.arguments_json)
            for call in printed
            if (call.name, call.arguments) not in called
        ]
        for text in (*texts, *native.rejected):
            lead = "\n" if self._content and not self._content[-1].endswith("\n") else ""
            self._show([events.Text(lead + text)])

    def _warn(self, reason: events.FinishReason, broken: str, cut: Sequence[str]) -> None:
        """Tell the user of an answer that was cut off; `cut` names the tools of unfinished calls.

        An answer without such a call says by its reason alone that it reached its length limit.
        """
        unfinished = (
            f" The call of {', '.join(cut)} was not complete and is not run." if cut else ""
        )
        if broken:
            self._notice(f"The answer was cut off: {broken}.{unfinished}")
        elif reason is events.FinishReason.LENGTH and cut:
            self._notice(f"The answer reached its length limit.{unfinished}")
        if self._stop is not None and self._stop.note:
            self._notice(self._stop.note)

    def _notice(self, text: str) -> None:
        self._send(events.Notice(replace_surrogates(text), events.Topic.WARNING))

    def _take_text(self, text: str) -> None:
        if text:
            self.started = True
            self._show(self._output.feed(self._text_joiner.feed(text)))

    def _show(self, pieces: Sequence[events.TextEvent]) -> None:
        """Send text and thoughts, and keep them for the message; empty ones are left out.

        The log probabilities of the text's tokens are stored before, for the callback to read.
        """
        if self._content_tokens is not None and self._logprobs is not None:
            self._logprobs += self._content_tokens.tokens_of(p for p in pieces if p.text)
        for event in pieces:
            if event.text:
                thought = isinstance(event, events.Thinking)
                (self._reasoning if thought else self._content).append(event.text)
                self._send(event)

    def _send(self, event: events.Event) -> None:
        if not self.cancelled:
            self.cancelled = not self._callback(event)


def _append(extra: messages.JsonObject, value: messages.JsonObject) -> None:
    """Add `value`: lists are extended, other existing fields are replaced."""
    for key, new in value.items():
        old = extra.get(key)
        both = isinstance(old, list) and isinstance(new, list)
        extra[key] = [*cast(list[Any], old), *cast(list[Any], new)] if both else new


def _updated(usage: stream.Usage, later: stream.Usage) -> stream.Usage:
    """The usage with the counts of a later one, which may have only some of them."""
    counts = {name: count for name, count in structs.asdict(later).items() if count is not None}
    return structs.replace(usage, **counts)


_DONE = b"[DONE]"
"""The last event of OpenAI's API and of those that copy it."""

CUT = "the connection ended before the answer did"

GRACE = 2.0
"""Seconds for the usage and the end after a complete answer, to reuse the connection."""


class Reading:
    """Feeds one response to an answer.

    `broken` says why it ended too early, "" if it did not. `waited` are the seconds until the
    answer began, `spoken` those since.
    """

    def __init__(self, decoder: stream.Decoder, answer: Answer, clock: Callable[[], float]) -> None:
        self._decoder = decoder
        self._answer = answer
        self._clock = clock
        self._has_done_mark = False  # OpenAI's last event has come
        self._requested_at = clock()
        self._answer_began_at: float | None = None
        self.broken = ""

    @property
    def waited(self) -> float:
        """The seconds until the answer began, or until now if it has not."""
        began_at = self._clock() if self._answer_began_at is None else self._answer_began_at
        return began_at - self._requested_at

    @property
    def spoken(self) -> float:
        """The seconds since the answer began, 0.0 before."""
        return 0.0 if self._answer_began_at is None else self._clock() - self._answer_began_at

    async def run(
        self, response: httpx.Response, framing: stream.Framing, limit: asyncio.Timeout
    ) -> None:
        """Read until the answer or the connection ends, or the callback returns False.

        With the first byte the `limit` ends.
        """
        decoder = decoder_for(framing)
        why = CUT
        try:
            try:
                await self._follow(response, decoder, limit)
            except httpx.RequestError as error:
                why = reason(error)
            self.take(decoder.finish())
        except errors.UnreachableError as error:  # of the decoder: what came is not an API's answer
            why = reason(error)
        # an answer that ended without being whole was cancelled, or has an error of its own
        if not (self._is_whole or self._answer.ended):
            self.broken = why

    async def _follow(
        self, response: httpx.Response, decoder: StreamDecoder, first: asyncio.Timeout
    ) -> None:
        """Feed the answer until the response ends, for at most `GRACE` after a whole answer.

        Some servers keep the connection open; the wait lets others end, so that it can be reused.
        """
        with suppress(TimeoutError):  # GRACE is over
            async with asyncio.timeout(None) as limit:
                async for piece in response.aiter_bytes():
                    first.reschedule(None)
                    self.take(decoder.feed(piece))
                    if self._answer.ended:
                        return
                    if self._is_whole and limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + GRACE)

    @property
    def _is_whole(self) -> bool:
        """Whether the API has said that this was all."""
        return self._has_done_mark or self._decoder.complete

    def take(self, received: Iterable[StreamEvent]) -> None:
        """Feed these events to the answer; events after the end are ignored."""
        if self._answer.ended:
            return
        deltas: list[stream.Delta] = []
        for name, data, _id in received:
            text = data.strip()
            if name == COMMENT:
                self._answer.take_comment(text.decode("utf-8", "replace"))
                continue
            self._has_done_mark = self._has_done_mark or text == _DONE
            if self._has_done_mark:
                break
            deltas += self._decoder.feed(name, json_text.object_in(text))
        if deltas:
            self._answer.take(deltas)
            if self._answer_began_at is None and self._answer.started:
                self._answer_began_at = self._clock()

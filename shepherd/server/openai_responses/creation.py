"""One request for a response, from its items to its answer."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from msgspec import Struct, field, structs

from shepherd.backends.base import Backend, Generation, ModelInfo
from shepherd.conversation import compaction
from shepherd.errors import BusyError
from shepherd.events import FinishReason
from shepherd.messages import JsonObject, Message
from shepherd.server import guard, responses
from shepherd.server.access.keys import Admission
from shepherd.server.errors import answer_cut
from shepherd.server.openai_responses import answers, items, requests
from shepherd.server.openai_responses.store import ResponseStore, ResponseStoreError, StoredResponse
from shepherd.server.openai_responses.to_session import Source, Translator, instruction
from shepherd.server.serving import Exchange, Serving
from shepherd.server.wire.answers import new_id
from shepherd.server.wire.fields import MAX_TOKENS
from shepherd.tasks import end_tasks
from shepherd.tools.text import pluralize

logger = logging.getLogger(__name__)
_NOTHING = Generation(Message.assistant(""), FinishReason.STOP)


class Creation(Struct):
    """A response that is being made for the key `owner`.

    `events` writes those of `record`, and `opening` are the ones before the text that were not
    sent yet. `max_tokens` is for a request without a limit. `output` is there once a model answers.
    """

    record: requests.ResponseRecord
    events: answers.EventWriter
    history: items.History
    translator: Translator
    store: ResponseStore
    owner: str = ""
    max_tokens: int = 0
    opening: Sequence[str] = answers.OPENING
    output: answers.OutputWriter | None = None

    async def translate(self, serving: Serving, model: Backend) -> Exchange:
        """The exchange with a model; raises ApiError."""
        return await serving.translate(self.history.items, self._exchange, model.info)

    async def compacted(self, serving: Serving, model: Backend) -> JsonObject:
        """The conversation with a summary in its place; raises ApiError without one."""
        exchange = await self.translate(serving, model)
        session, record = exchange.session, self.record
        if model.info.trained_tools is None:
            limit = compaction.summary_tokens(model.info)
            session.messages.append(Message.user(compaction.instruction(model.info)))
            await serving.whole(model, structs.replace(exchange, max_tokens=limit))
            written = [item for item in record.output if item["type"] == "message"]
            text = "".join(part["text"] for item in written for part in item["content"])
        else:  # it was trained on a few tasks, and can't summarise
            text, record.usage = compaction.digest(session.messages), requests.usage_of(_NOTHING)
        if not text:
            raise answer_cut("The model wrote no summary.")
        count = pluralize(len(session.messages), "message")
        content = compaction.SUMMARY.format(count=count, text=text)
        kept = [item.data for item in self.history.items if instruction(item) is not None]
        signed = self.translator.sign({"text": content})
        summary = {"id": new_id("cmp_", 32), "type": "compaction", "encrypted_content": signed}
        return {
            "id": record.id,
            "object": "response.compaction",
            "created_at": record.created,
            "output": [*kept, summary],
            "usage": record.usage,
        }

    async def keep(self) -> None:
        """Store the response as it is now, if that was requested; a failure is logged."""
        if not self.record.stored:
            return
        sent = [item.data for item in self.history.own]
        try:
            await self.store.save(self.owner, StoredResponse(self.record.body(), sent))
        except ResponseStoreError as error:
            self.record.stored = False
            logger.error("A response is not stored: %s", error)

    def fail(self, error: BaseException) -> str:
        """End the response as failed; the event that says so."""
        self.record.fail(error, self._partial_output())
        return self.events.state("response.failed")

    def cancel(self) -> None:
        """End the response as cancelled, unless it is complete."""
        if not self.record.status.is_final:
            self.record.end(requests.Status.CANCELLED, self._partial_output())

    def _partial_output(self) -> Sequence[JsonObject]:
        """The items so far; the one to which text was added is incomplete."""
        if self.output is None:
            return ()
        list(self.output.close(requests.Status.INCOMPLETE))  # nobody reads the events
        return self.output.items

    def _exchange(self, model: ModelInfo) -> Exchange:
        """The exchange with a model; a summary of the reasoning is the reasoning itself."""
        request = self.record.request
        conversation = self.translator.conversation(request, self.history.items, model)
        self.record.model = request.model or model.id
        self.record.left_out = conversation.tools.left_out
        view = answers.PLAIN_REASONING if conversation.session.thinking else None
        if request.reasoning is not None and request.reasoning.summary_style:
            view = answers.REASONING_SUMMARY
        one_call = request.parallel_tool_calls is False
        self.output = answers.OutputWriter(conversation.tools, view, self.translator.sign, one_call)
        truncates = request.truncation == "auto"
        answer = answers.ResponseAnswer(
            *(self.record, self.output, self.keep, self.events, self.opening),
            all_timings=bool(request.timings_per_token),
        )
        return Exchange(
            conversation.session,
            answer,
            progress=answer.progress if request.stream and request.return_progress else None,
            max_tokens=min(request.max_output_tokens or self.max_tokens, MAX_TOKENS),
            on_evicted=partial(self._evicted, conversation.sources) if truncates else None,
            tools_allowed=request.tool_choice != "none",
            left_out=conversation.tools.left_out,
        )

    def _evicted(self, sources: Sequence[Source], messages: Sequence[Message]) -> None:
        """Note the items of messages that left, which are known by identity: some are equal."""
        evicted = {id(message) for message in messages}
        for message, ids in sources:
            if id(message) in evicted:
                self.record.truncated_items += ids


MAX_RUNNING = 64
MAX_FINISHED = 32
"""Finished responses whose events can still be streamed."""


class Job:
    """A background response; `frames` are its events so far, each at the place of its number.

    `accepted` is the response as it was at the beginning. `_work` generates, and `_watch` waits for
    its end.
    """

    def __init__(self, creation: Creation, serving: Serving) -> None:
        self.creation = creation
        # what followers see, and what the request was answered with
        self.frames: list[str] = []
        self.is_over = False
        self.accepted: JsonObject = {}
        self._serving = serving
        self._changed = asyncio.Event()  # of the next frame or the end, then a new one
        self._work: asyncio.Task[None] | None = None  # generates the answer
        self._watch: asyncio.Task[None] | None = None  # stores how the work has ended

    async def start(self, admission: Admission | None) -> None:
        """Begin once the request is accepted; raises the reason why it is not.

        `admission` has the key of the request; when that is not valid any more, the work ends.
        """
        creation, record = self.creation, self.creation.record
        record.status = requests.Status.QUEUED
        creation.opening = ("response.in_progress",)  # the event before it is added here
        self.accepted = record.body()
        self._add(creation.events.state("response.created"))
        self._add(creation.events.state("response.queued"))
        try:
            model = await self._serving.lease(record.request.model)
            exchange = await creation.translate(self._serving, model)
            await creation.keep()
        except BaseException:  # no task gives back the model, because none has begun
            await self._serving.aclose()
            raise
        self.accepted["store"] = record.stored  # false if it could not be kept
        self._work = work = asyncio.create_task(self._generate(model, exchange))
        self._watch = asyncio.create_task(self._finish(work, admission))

    async def cancel(self) -> None:
        """Stop the work; a response that is complete stays as it is."""
        if self._work is not None and self._watch is not None:
            await end_tasks(self._work)
            await asyncio.wait({self._watch})  # which notes and stores the new status

    async def follow(self, first: int) -> responses.Frames:
        """Yields the events from the number `first` on, until the response is over."""
        while True:
            # both of the moment before the frames are read, so that no later one is missed
            changed, is_over = self._changed, self.is_over
            for frame in self.frames[first:]:
                first += 1
                yield frame
            if is_over:
                return
            await changed.wait()

    async def _generate(self, model: Backend, exchange: Exchange) -> None:
        """The task that makes the events; it ends with the answer."""
        async with self._serving.frames(model, exchange) as frames:
            async for frame in frames:
                self._add(frame)

    async def _finish(self, work: asyncio.Task[None], admission: Admission | None) -> None:
        """The task that waits for the work, and stores how it has ended."""
        while not work.done():
            await asyncio.wait({work}, timeout=guard.CHECK_SECONDS)
            if admission is not None and not admission.is_valid():  # the key was revoked
                await end_tasks(work)
        # an answer that is complete has kept itself
        if work.cancelled():
            self.creation.cancel()
            await self.creation.keep()
        elif (error := work.exception()) is not None:
            self._add(self.creation.fail(error))
            await self.creation.keep()
        self.is_over = True
        self.creation.history = items.History()  # which may be large
        self._notify()

    def _add(self, frame: str) -> None:
        """Keep an event, and give it to all followers."""
        self.frames.append(frame)
        self._notify()

    def _notify(self) -> None:
        """Wake all followers; they wait for the next change on a new event."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Jobs(Struct, frozen=True):
    """The background responses of this process, by their ids."""

    _jobs: dict[str, Job] = field(default_factory=dict[str, Job])

    async def start(self, creation: Creation, serving: Serving, admission: Admission | None) -> Job:
        """Begin a response; raises the reason why it is not accepted, BusyError if many run."""
        if sum(not job.is_over for job in self._jobs.values()) >= MAX_RUNNING:
            raise BusyError(f"{MAX_RUNNING} background responses already run; try again later.")
        job = Job(creation, serving)
        self._jobs[creation.record.id] = job
        try:
            await job.start(admission)
        except BaseException:
            del self._jobs[creation.record.id]
            raise
        finished = [name for name, other in self._jobs.items() if other.is_over]
        for name in finished[:-MAX_FINISHED]:  # the oldest ones, which can be read from the store
            del self._jobs[name]
        return job

    def find(self, owner: str, id: str) -> Job | None:
        """The response; None if it is not here, or another key's."""
        job = self._jobs.get(id)
        return job if job is not None and job.creation.owner == owner else None

    async def remove(self, job: Job) -> None:
        """Cancel a response and forget it."""
        await job.cancel()
        self._jobs.pop(job.creation.record.id, None)

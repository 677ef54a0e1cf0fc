"""The backend of every model behind an HTTP API."""

import asyncio
import math
from collections.abc import Mapping
from typing import Self

import httpx
from msgspec.structs import replace

from shepherd import errors, events, messages
from shepherd.backends.api import embedding, estimate, parameters
from shepherd.backends.api.adaptation import Adaptation, adapt
from shepherd.backends.api.adapter import Adapter, ApiRequest, ModelTraits
from shepherd.backends.api.answer import Answer, Reading
from shepherd.backends.api.http.client import ApiClient, ClientOptions, Contact, Endpoint
from shepherd.backends.api.http.failures import Failure, refused, unreachable
from shepherd.backends.api.http.retry import Gate
from shepherd.backends.api.prompt import (
    NOTICE,
    ApiPrefilled,
    Prompt,
    as_counted,
    as_sent,
    check_new_images,
    message_as_counted,
    visible,
    visible_message,
)
from shepherd.backends.api.window import Window, ask_window
from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.backends.text_model import refuse_raw
from shepherd.prices import Price, price_of
from shepherd.session import Session

MIN_ANSWER = 256
"""Tokens; instead of allowing only a shorter answer, part of the conversation is evicted."""

MIN_MARGIN, MAX_MARGIN = 0.02, 0.2
"""The share by which an estimate may be too low, if an output limit must fit after it."""

LIMIT_STEPS = 8
"""An output limit that does not fit is reduced by multiples of this part of it."""


class ApiBackend(Backend):
    """One model of one provider; serves any number of requests at once.

    `estimator` counts its prompts, `window` holds its context size and output limit.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        adapter: Adapter,
        traits: ModelTraits,
        *,
        client: httpx.AsyncClient | None = None,
        options: ClientOptions | None = None,
        window_source: str = "",
    ) -> None:
        """`client` is shared and stays open; `window_source` tells who stated the context size."""
        self.endpoint = endpoint
        # the adapter, the traits and the window change as the provider's answers teach them
        self.adapter = adapter
        self.client = ApiClient(endpoint, adapter, options, http=client)
        self.estimator = estimate.TokenEstimator()
        self.window = Window(traits.context_size, traits.output_limit, window_source)
        self._traits = traits
        self._contact = Contact(self.client, adapter)
        self._has_noticed_tools = False
        self._closed = False

    @classmethod
    async def connect(
        cls,
        endpoint: Endpoint,
        adapter: Adapter,
        traits: ModelTraits,
        *,
        context_size: int = 0,
        traits_source: str = "the model database",
        options: ClientOptions | None = None,
    ) -> Self:
        """A backend whose provider has named the model and its context size.

        `context_size` is the user's setting, which overrides the server's value. The server's value
        overrides `traits`, whose source is `traits_source`. Without a `traits.id` the only offered
        model is used. Raises AccessError, UnreachableError, and InvalidRequestError if the user
        must choose a model.
        """
        backend = cls(endpoint, adapter, traits, options=options)
        try:
            model_traits, window = await ask_window(
                backend.client, adapter, traits, context_size, traits_source
            )
        except BaseException:  # a cancelled start must not leave connections open either
            await backend.aclose()
            raise
        if traits.output_setting:
            window = replace(window, output_limit=traits.output_setting)
        backend._adopt(model_traits, window)
        return backend

    def use_prices(self, prices: Mapping[str, Price]) -> None:
        """Prefer these prices, by the names of models, to the provider's own."""
        price = price_of(prices, self._traits.id) or self._traits.price
        self._traits = replace(self._traits, price=price)

    @property
    def info(self) -> ModelInfo:
        traits, api, error = self._traits, self.adapter.embeddings, self.estimator.error
        return ModelInfo(
            traits.id,
            self.adapter.name,
            self.window.size,
            self.endpoint.label,
            vision=traits.vision,
            # before the first usage nothing is known of the tokenizer
            count_error=1.0 if error is None else error,
            embedder=embedding.ApiEmbedder(self.client, api, traits.id) if api else None,
        )

    @property
    def traits(self) -> ModelTraits:
        """The model's properties, from which requests are built."""
        return self._traits

    @property
    def alive(self) -> bool:
        return not self._closed

    async def reachable(self) -> bool:
        return self.alive and await self._contact.there()

    async def prefill_session(self, session: Session, callback: events.EventCallback) -> Prefilled:
        """Builds the request; raises InvalidRequestError for a feature that the API lacks."""
        refuse_raw(session, self._traits.id)
        prompt = self._prompt(session)
        return ApiPrefilled(prompt, self.estimator.estimate(prompt.counted))

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: events.EventCallback, max_tokens: int = 0
    ) -> Generation:
        """Sends the request; an answer that is cut off ends as ERROR, with the text so far.

        Raises AccessError, InvalidRequestError, ContextFullError, BusyError and UnreachableError,
        all before any event of the answer was sent.
        """
        if not isinstance(prefilled, ApiPrefilled):
            raise TypeError("the handle belongs to another backend")
        gate = Gate(callback)
        while True:  # ends, as each adaptation removes a part of the request
            self._notice_prompted_tools(prefilled.prompt, gate)
            try:
                return await self._answer(prefilled, gate, max_tokens)
            except errors.InvalidRequestError as error:
                current = Adaptation(self.adapter, self._traits)
                adaptation = adapt(error, prefilled.prompt, current)
                if adaptation is None:
                    raise
            self.adapter, self._traits = adaptation
            prefilled.prompt = self._prompt(prefilled.prompt.session)
            prefilled.prompt_tokens = self.estimator.estimate(prefilled.prompt.counted)

    async def _answer(self, prefilled: ApiPrefilled, gate: Gate, max_tokens: int) -> Generation:
        """The answer; once more with a shorter limit if prompt and limit together were too long.

        `max_tokens` 0 = as long as the API or the model allows.
        """
        prompt = prefilled.prompt
        request = prompt.request
        limit = self._limit(prefilled.prompt_tokens, max_tokens)
        if limit:
            request = prompt.adapter.chat(prompt.sent, self._traits_for(prompt.sent), limit)
            prefilled.prompt = replace(prompt, request=request)
        try:
            return await self._generate(prefilled, request, gate)
        except errors.ContextFullError as full:
            cause = full.__cause__
            overflow = cause.overflow if isinstance(cause, Failure) else None
            if overflow is None:
                raise
            if overflow.prompt_tokens:
                self.estimator.learn(prompt.counted, overflow.prompt_tokens)
            self._adopt(self._traits, self.window.corrected(overflow.limit))
            room = overflow.fits_with or 0
            # a prompt that leaves no room, or that was refused with a shorter answer, is too long
            if room < MIN_ANSWER or 0 < limit <= room:
                raise
        shorter = prompt.adapter.chat(prompt.sent, self._traits_for(prompt.sent), room)
        return await self._generate(prefilled, shorter, gate)

    async def count_message_tokens(self, session: Session, message: messages.Message) -> int:
        message = visible_message(message, self._traits, self.adapter.image_types)
        message = message_as_counted(message, self._traits)
        return self.estimator.estimate_message(message)

    async def count_session_tokens(self, session: Session) -> int:
        """An estimate; exact for a prompt that the provider has counted already."""
        return self.estimator.estimate(as_counted(self._visible(session), self._traits))

    async def aclose(self) -> None:
        self._closed = True
        await self.client.aclose()

    def _limit(self, prompt_tokens: int, max_tokens: int) -> int:
        """The output limit to send, 0 for the adapter's default if that fits after the prompt.

        If a limit is always sent, it must fit into the context, or the API refuses the request. It
        is reduced in steps, since a changed budget for thoughts invalidates Anthropic's prompt
        cache.
        """
        usual = self.adapter.usual_limit(self._traits)
        if not usual or not self.window.size:  # nothing is sent, or nothing to compare it with
            return max_tokens
        margin = min(max(self.estimator.error or 0.0, MIN_MARGIN), MAX_MARGIN)
        room = self.window.size - math.ceil(prompt_tokens * (1 + margin))
        step = max(1, usual // LIMIT_STEPS)
        room = max(room - room % step, MIN_ANSWER)
        if max_tokens:
            return min(max_tokens, room)
        return room if room < usual else 0

    async def _generate(
        self, prefilled: ApiPrefilled, request: ApiRequest, gate: Gate
    ) -> Generation:
        return await self.client.retrying(
            lambda: self._attempt(prefilled, request, gate), gate.tell_pause
        )

    async def _attempt(
        self, prefilled: ApiPrefilled, request: ApiRequest, gate: Gate
    ) -> Generation:
        """One request; raises Failure if no part of the answer arrived."""
        await self.client.limiter.admit(prefilled.prompt_tokens, gate.tell_wait)
        prompt, logprobs = prefilled.prompt, prefilled.logprobs
        answer = Answer(
            prompt.adapter,
            prompt.session,
            gate,
            logprobs,
            prompted_tools=prompt.prompted_tools,
            prompt_tokens=prefilled.prompt_tokens,
        )
        reading = Reading(prompt.adapter.decoder(), answer, self.client.clock)
        answer.cancelled = gate.closed  # the user may have cancelled during a pause
        if not answer.cancelled:
            seconds = self.client.first_byte_seconds
            try:
                async with (
                    asyncio.timeout(seconds) as limit,
                    self.client.opened(request, self._traits.id) as response,
                ):
                    await reading.run(response, self.adapter.framing, limit)
            except TimeoutError as error:
                why = f"no answer has begun after {seconds:g} s"
                target = self.client.target(self._traits.id)
                raise unreachable(target, why, transient=False) from error
        broken = self._broken(answer, reading)
        stats = self._stats(prefilled, answer, reading)
        return answer.complete(stats, broken)

    def _broken(self, answer: Answer, reading: Reading) -> str:
        """Why the answer ended too early, "" if it did not; raises Failure without any answer."""
        error = answer.error
        if answer.cancelled or not (error or reading.broken):
            return ""  # who cancels does not care why it ended
        target = self.client.target(self._traits.id)
        if error is None:
            if not answer.started:
                raise unreachable(target, reading.broken)
            return reading.broken
        failure = refused(target, error.status, error.body)
        if not answer.started:
            raise failure
        return target.words(error.body) or str(failure.error)

    def _stats(self, prefilled: ApiPrefilled, answer: Answer, reading: Reading) -> events.Stats:
        """The measures, by the API's own count if there is one; the estimator learns from it."""
        usage = answer.usage
        if usage.prompt_tokens:
            self.estimator.learn(prefilled.prompt.counted, usage.prompt_tokens)
        prompt = usage.prompt_tokens or prefilled.prompt_tokens
        completion = usage.completion_tokens
        if completion is None:
            completion = self.estimator.estimate_message(answer.message())
        prefilled.cached_tokens = usage.cached_tokens or 0
        self.client.limiter.add_spent(completion)
        cached, price = prefilled.cached_tokens, self._traits.price
        return events.Stats(
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
            prefill_seconds=reading.waited,
            decode_seconds=reading.spoken,
            context_used=prompt + completion,
            context_size=self.window.size,
            cost=None if price is None else price.cost(prompt, cached, completion),
        )

    def _visible(self, session: Session) -> Session:
        return visible(session, self._traits, self.adapter.image_types)

    def _prompt(self, session: Session) -> Prompt:
        """The session as it is sent to this provider.

        Raises InvalidRequestError, and ImageError for a new image that the model can't see.
        """
        check_new_images(session.messages, self._traits, self.adapter.image_types)
        session = self._visible(session)
        sampling = parameters.without_refused(session.sampling, self._traits.refused)
        if sampling is not session.sampling:
            session = replace(session, sampling=sampling)
        sent, counted = as_sent(session, self._traits), as_counted(session, self._traits)
        request = self.adapter.chat(sent, self._traits_for(sent), max_tokens=0)
        return Prompt(session, sent, counted, self.adapter, request)

    def _traits_for(self, session: Session) -> ModelTraits:
        """The traits, with the session's effort unless the provider's settings have one."""
        if self._traits.effort or not (session.thinking and session.thinking_effort):
            return self._traits
        return replace(self._traits, effort=session.thinking_effort)

    def _notice_prompted_tools(self, prompt: Prompt, gate: Gate) -> None:
        """Tell once that the model reads about its tools in the prompt."""
        if prompt.prompted_tools and not self._has_noticed_tools:
            self._has_noticed_tools = True
            gate(events.Notice(NOTICE.format(model=self._traits.id), events.Topic.NOTICE))

    def _adopt(self, traits: ModelTraits, window: Window) -> None:
        """Use these properties and this window from now on, also for the next requests."""
        if traits.id != self._traits.id:  # its tokenizer is another one
            self.estimator = estimate.TokenEstimator()
        self.window = window
        self._traits = replace(traits, context_size=window.size, output_limit=window.output_limit)

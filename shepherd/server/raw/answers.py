"""The answers to raw prompts in the shapes of OpenAI's completions API and of llama.cpp."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, cast

from shepherd.backends.base import Generation, ModelInfo
from shepherd.events import FinishReason, Stats
from shepherd.json_text import frame
from shepherd.messages import JsonObject
from shepherd.sampling import BIAS_RANGE, PARAMETERS, Sampling, TokenLogprob, TokenProbability
from shepherd.server.generation import NO_TOKENS, ChoicePiece, PromptProgress
from shepherd.server.raw.requests import CompletionRequest, LlamaRequest
from shepherd.server.serving import Answer
from shepherd.server.wire import answers, fields


@dataclass
class OpenAiCompletion(Answer):
    """The answers to one or more prompts, as an object or as the chunks of a stream.

    Of `candidates` answers to each prompt the `n` most likely are kept. `echoes` are the
    prompts that the texts begin with; None for a prompt of tokens, whose text the backend knows.
    """

    request: CompletionRequest
    model: ModelInfo
    candidates: int
    echoes: Sequence[str | None]
    id: str = field(default_factory=partial(answers.new_id, "cmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))
    _offsets: dict[int, int] = field(default_factory=dict[int, int])

    def whole(self, generations: Sequence[Generation]) -> JsonObject:
        """The whole answer: the choices of the first prompt, then those of the next."""
        choices: list[JsonObject] = []
        for first in range(0, len(generations), self.candidates):
            for generation in self._best(generations[first : first + self.candidates]):
                choices.append(self._choice(len(choices), first, generation))
        return self._frame(choices) | self._end(generations)

    def begin(self, choice: int) -> Iterator[str]:
        """The chunk of the prompt, if it was requested."""
        echo = self._echo(choice)
        self._offsets[choice] = len(echo)
        if echo:
            tokens = self._echoed_logprobs(choice, echo)
            logprobs = _logprobs(tokens, offset=0) if tokens else None
            yield frame(self._chunk(choice, echo, logprobs=logprobs))

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """The chunk of a text."""
        offset = self._offsets[piece.choice]
        has_logprobs = self.request.logprobs is not None
        logprobs = _logprobs(piece.logprobs, offset) if has_logprobs else None
        self._offsets[piece.choice] = offset + len(piece.text)
        yield frame(self._chunk(piece.choice, piece.text, logprobs=logprobs))

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """The chunk with the reason of the end."""
        last = self._chunk(choice, text="", finish=_finish_reason(generation))
        if not self._ends_with_usage:  # else the chunk with the usage has them
            last["timings"] = answers.timings(generation.stats)
        yield frame(last)

    def close(self, generations: Sequence[Generation]) -> Iterator[str]:
        """The usage, if it was requested, and the end."""
        if self._ends_with_usage:
            yield frame(self._frame(choices=[]) | self._end(generations))
        yield frame("[DONE]")

    def _best(self, generations: Sequence[Generation]) -> Sequence[Generation]:
        """The likeliest of the candidates for one prompt; all of them where none has to leave."""
        count = self.request.n or 1
        if self.candidates == count:
            return generations
        return sorted(generations, key=_likelihood, reverse=True)[:count]

    def _choice(self, index: int, candidate: int, generation: Generation) -> JsonObject:
        """The object of a kept answer to the prompt of the generation at `candidate`."""
        echo = self._echo(candidate)
        logprobs: JsonObject | None = None
        if self.request.logprobs is not None:
            logprobs = _logprobs(self._echoed_logprobs(candidate, echo), offset=0)
            of_answer = _logprobs(generation.logprobs or (), offset=len(echo))
            for name, values in of_answer.items():
                logprobs[name] += values
        return {
            "text": echo + generation.message.content,
            "index": index,
            "logprobs": logprobs,
            "finish_reason": _finish_reason(generation),
        }

    def _echo(self, index: int) -> str:
        """The text of a choice's prompt, "" unless it was requested."""
        if not self.echoes:  # the request has no `echo`
            return ""
        text = self.echoes[index // self.candidates]  # one for each prompt
        if text is not None:
            return text
        return self.choices.handle(index).prompt_text

    def _echoed_logprobs(self, index: int, echo: str) -> Sequence[TokenLogprob]:
        """Those of the prompt's tokens; the token for the beginning is not part of a text."""
        if self.request.logprobs is None or not echo:
            return ()
        first_of_prompt = index - index % self.candidates  # only that one has them
        tokens = self.choices.handle(first_of_prompt).prompt_logprobs
        is_prompt_of_tokens = self.echoes[index // self.candidates] is None
        if is_prompt_of_tokens:  # the client has sent each of them itself
            return tokens
        # If the others make up the whole text, the first token is the one for the beginning.
        bytes_of_others = sum(len(token.piece) for token in tokens[1:])
        has_start = bytes_of_others >= len(echo.encode("utf-8", "replace"))
        return tokens[1:] if has_start else tokens

    def _chunk(
        self, index: int, text: str, finish: str | None = None, logprobs: JsonObject | None = None
    ) -> JsonObject:
        """A chunk with more text of the choice `index`."""
        choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}
        chunk = self._frame([choice])
        # OpenAI's chunks before the one with the usage have it as null
        return chunk | {"usage": None} if self._ends_with_usage else chunk

    @cached_property
    def _fingerprint(self) -> str:
        return answers.fingerprint(self.model)

    @property
    def _ends_with_usage(self) -> bool:
        return fields.wants_usage(self.request.stream_options)

    def _end(self, generations: Sequence[Generation]) -> JsonObject:
        """The usage: each prompt once, and all candidates, also those that are not kept."""
        first_of_each_prompt = generations[:: self.candidates]
        prompts = [generation.stats for generation in first_of_each_prompt]
        usage = answers.completion_usage(prompts, generations)
        return {"usage": usage, "timings": answers.timings(generations[0].stats)}

    def _frame(self, choices: Sequence[JsonObject]) -> JsonObject:
        """The fields that the whole answer and each of its chunks have."""
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.request.model or self.model.id,
            "system_fingerprint": self._fingerprint,
            "choices": list(choices),
        }


def _finish_reason(generation: Generation) -> str:
    """OpenAI's word for why the generation ended."""
    return "length" if generation.finish_reason is FinishReason.LENGTH else "stop"


def _logprobs(tokens: Iterable[TokenLogprob], offset: int) -> JsonObject:
    """The `logprobs` object; `offset` is where the first token stands in the text."""
    body: JsonObject = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token in tokens:
        likeliest = {chance.text: max(chance.logprob, answers.IMPOSSIBLE) for chance in token.top}
        # the first token of a prompt has no probability, because nothing precedes it
        own = None if math.isnan(token.logprob) else max(token.logprob, answers.IMPOSSIBLE)
        body["tokens"].append(token.text)
        body["token_logprobs"].append(own)
        # the chosen token may be none of the likeliest
        body["top_logprobs"].append(None if own is None else likeliest | {token.text: own})
        body["text_offset"].append(offset)
        offset += len(token.text)
    return body


def _likelihood(generation: Generation) -> float:
    """The mean log probability of a token, by which candidates are compared."""
    tokens = generation.logprobs or ()
    return sum(token.logprob for token in tokens) / len(tokens) if tokens else -float("inf")


_LOWEST = -3.4028234663852886e38
"""llama.cpp's number for what has no probability."""


@dataclass
class LlamaCompletion(Answer):
    """The answers to one or more prompts, as objects or as events.

    `as_list`: a list holds even a single answer. `max_tokens` is as in `Exchange`.
    `_sent_tokens` counts for each choice the tokens that the client has.
    """

    request: LlamaRequest
    model: ModelInfo
    max_tokens: int = 0
    as_list: bool = False
    _sent_tokens: dict[int, int] = field(default_factory=dict[int, int])

    def whole(self, generations: Sequence[Generation]) -> JsonObject | list[JsonObject]:
        """The answer, or a list of the answers."""
        bodies = [self._final(index, generation) for index, generation in enumerate(generations)]
        return bodies if self.as_list else bodies[0]

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """The event of a text; with probabilities, one for each token."""
        if not self.request.n_probs:
            yield frame(self._piece(piece.choice, piece.text))
            return
        for text, tokens in _by_token(piece.text, piece.logprobs):
            chances = {"completion_probabilities": self._probabilities(tokens)}
            yield frame(self._piece(piece.choice, text) | chances)

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """The last event of an answer, with its measures."""
        yield frame(self._final(choice, generation))

    def progress(self, progress: PromptProgress) -> str:
        """The frame that tells how far the prompt is read."""
        body: JsonObject = {"index": 0, "content": "", "tokens": [], "stop": False}
        body["prompt_progress"] = answers.progress_fields(progress)
        if self.request.timings_per_token:
            # as long as all of it comes from the cache, no time was spent on reading
            seconds = progress.seconds if progress.done > progress.cached else 0.0
            stats = Stats(
                prompt_tokens=progress.done, cached_tokens=progress.cached, prefill_seconds=seconds
            )
            body["timings"] = answers.timings(stats)
        return frame(body)

    def _piece(self, index: int, text: str) -> JsonObject:
        """The event with more text of a choice."""
        handle = self.choices.handle(index)
        stats = handle.stats()
        piece: JsonObject = {
            "index": index,
            "content": text,
            "tokens": self._fresh_tokens(index),
            "stop": False,
            "id_slot": self.request.slot + index,
            "tokens_predicted": stats.completion_tokens,
            "tokens_evaluated": handle.prompt_tokens,
        }
        return (
            piece | {"timings": answers.timings(stats)} if self.request.timings_per_token else piece
        )

    def _final(self, index: int, generation: Generation) -> JsonObject:
        """The whole answer of a choice, or the last event of its stream, whose text was sent."""
        stats, text = generation.stats, generation.message.content
        handle = self.choices.handle(index)
        sampling = handle.sampling or Sampling()
        is_cut = generation.finish_reason is FinishReason.LENGTH
        is_context_full = 0 < stats.context_size <= stats.context_used  # a size of 0 is unknown
        # the events of a stream have their tokens also if the request does not say so
        tokens = (
            self._fresh_tokens(index) if self.request.return_tokens or self.request.stream else []
        )
        body: JsonObject = {
            "index": index,
            "content": "" if self.request.stream else text,
            "tokens": tokens,
            "id_slot": self.request.slot + index,
            "stop": True,
            "model": self.request.model or self.model.id,
            "tokens_predicted": stats.completion_tokens,
            "tokens_evaluated": stats.prompt_tokens,
            "generation_settings": generation_settings(
                sampling, self.max_tokens, stream=bool(self.request.stream)
            ),
            "prompt": handle.prompt_text,
            "has_new_line": "\n" in text,
            "truncated": is_cut and is_context_full,
            "stop_type": _stop_type(generation),
            "stopping_word": generation.stop_string,
            # without a measure of the context (0), at least the prompt is in it
            "tokens_cached": stats.context_used or stats.prompt_tokens,
            "timings": answers.timings(stats),
        }
        if self.request.n_probs and not self.request.stream:
            body["completion_probabilities"] = self._probabilities(generation.logprobs or ())
        paths = self.request.response_fields
        return _chosen_fields(body, paths) if paths else body

    def _probabilities(self, tokens: Iterable[TokenLogprob]) -> list[JsonObject]:
        """llama.cpp's `completion_probabilities`."""
        top = "top_probs" if self.request.post_sampling_probs else "top_logprobs"
        return [self._chance(token) | {top: [*map(self._chance, token.top)]} for token in tokens]

    def _chance(self, chance: TokenProbability) -> JsonObject:
        """A token with its probability, whose text leaves out a part of a character."""
        return {
            "id": chance.id,
            "token": chance.piece.decode("utf-8", "ignore"),
            "bytes": list(chance.piece),
        } | (
            {"prob": math.exp(chance.logprob)}
            if self.request.post_sampling_probs
            else {"logprob": max(chance.logprob, _LOWEST)}
        )

    def _fresh_tokens(self, index: int) -> list[int]:
        """The tokens of a choice since the last call."""
        generated = self.choices.handle(index).generated
        fresh = generated[self._sent_tokens.get(index, 0) :]
        self._sent_tokens[index] = len(generated)
        return [*fresh]


def _by_token(
    text: str, tokens: Sequence[TokenLogprob]
) -> list[tuple[str, Sequence[TokenLogprob]]]:
    """The text of each token with the token.

    It is one pair if the text is cut otherwise: a character may take several tokens.
    """
    if "".join(token.text for token in tokens) != text:
        return [(text, tokens)]
    return [(token.text, (token,)) for token in tokens]


def _chosen_fields(body: JsonObject, paths: Iterable[str]) -> JsonObject:
    """The values at these paths, such as `generation_settings/seed`; missing ones are left out."""
    chosen: JsonObject = {}
    for path in paths:
        value: Any = body
        for key in path.split("/"):
            value = cast(JsonObject, value).get(key) if isinstance(value, dict) else None
        if value is not None:
            chosen[path] = value
    return chosen


def _stop_type(generation: Generation) -> str:
    """llama.cpp's word for why the generation ended: `eos` is the model's own end."""
    if generation.finish_reason is FinishReason.LENGTH:
        return "limit"
    return "word" if generation.stop_string else "eos"


RANDOM_SEED = 2**32 - 1
"""llama.cpp's number for a seed of its own choice."""


def generation_settings(sampling: Sampling, max_tokens: int = 0, **others: Any) -> JsonObject:
    """The parameters of a request, under llama.cpp's names; `max_tokens` 0: as many as fit."""
    # llama.cpp writes "as many as fit" as -1, and "none" as 0
    limit = {0: -1, NO_TOKENS: 0}.get(max_tokens, max_tokens)
    numbers = {
        parameter.llamacpp: getattr(sampling, name)
        for name, parameter in PARAMETERS.items()
        if name != "logprobs"  # it is called n_probs below
    }
    return {
        **numbers,
        "seed": RANDOM_SEED if sampling.seed is None else sampling.seed,
        "dry_sequence_breakers": list(sampling.dry_sequence_breakers or ()),
        "adaptive_target": -1.0,
        "adaptive_decay": 0.0,
        "stop": list(sampling.stop or ()),
        "max_tokens": limit,
        "n_predict": limit,
        "n_keep": 0,
        "n_discard": 0,
        "ignore_eos": bool(sampling.ignore_eos),
        "logit_bias": [_bias(token, bias) for token, bias in sampling.logit_bias or ()],
        "n_probs": sampling.logprobs or 0,
        "samplers": list(sampling.samplers or ()),
        "lora": [],
        **others,
    }


def _bias(token: int | str, bias: float) -> JsonObject:
    """A ban is null, as JSON writes llama.cpp's infinity."""
    lowest, _ = BIAS_RANGE
    return {"bias": None if bias <= lowest else bias, "token": token}

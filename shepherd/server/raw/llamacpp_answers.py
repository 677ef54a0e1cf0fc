"""The answers to raw prompts in the shapes of llama.cpp's `/completion`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from shepherd.backends.base import Generation
from shepherd.events import FinishReason, Stats
from shepherd.json_text import frame
from shepherd.messages import JsonObject
from shepherd.sampling import BIAS_RANGE, PARAMETERS, Sampling, TokenLogprob, TokenProbability
from shepherd.server.exchange import Answer
from shepherd.server.generation import NO_TOKENS, ChoicePiece, PromptProgress
from shepherd.server.wire.answers import progress_fields, timings

_LOWEST = -3.4028234663852886e38
"""llama.cpp's number for what has no probability."""


@dataclass
class LlamaCompletion(Answer):
    """The answers to one or more prompts; a list of them if `many`."""

    model: str
    max_tokens: int = 0
    many: bool = False
    stream: bool = False
    probabilities: bool = False
    return_tokens: bool = False
    all_timings: bool = False
    fields: Sequence[str] = ()
    _sent: dict[int, int] = field(default_factory=dict[int, int])

    def whole(self, generations: Sequence[Generation]) -> JsonObject | list[JsonObject]:
        """The answer, or a list of the answers."""
        answers = [self._final(index, generation) for index, generation in enumerate(generations)]
        return answers if self.many else answers[0]

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """The event of a text; with probabilities, one for each token."""
        if not self.probabilities:
            yield frame(self._piece(piece.choice, piece.text))
            return
        for text, tokens in _by_token(piece.text, piece.logprobs):
            chances = {"completion_probabilities": _probabilities(tokens)}
            yield frame(self._piece(piece.choice, text) | chances)

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """The last event of an answer, with its measures."""
        yield frame(self._final(choice, generation))

    def progress(self, progress: PromptProgress) -> str:
        """The frame that tells how far the prompt is read."""
        body: JsonObject = {"index": 0, "content": "", "tokens": [], "stop": False}
        body |= {"prompt_progress": progress_fields(progress)}
        return frame(body | {"timings": _prompt_timings(progress)} if self.all_timings else body)

    def _piece(self, index: int, text: str) -> JsonObject:
        handle = None if self.choices is None else self.choices.handle(index)
        stats = Stats() if handle is None else handle.stats()
        piece: JsonObject = {
            "index": index,
            "content": text,
            "tokens": self._fresh_tokens(index),
            "stop": False,
            "id_slot": index,
            "tokens_predicted": stats.completion_tokens,
            "tokens_evaluated": handle.prompt_tokens if handle else 0,
        }
        return piece | {"timings": timings(stats)} if self.all_timings else piece

    def _final(self, index: int, generation: Generation) -> JsonObject:
        stats, text = generation.stats, generation.message.content
        handle = None if self.choices is None else self.choices.handle(index)
        sampling = Sampling() if handle is None else handle.sampling or Sampling()
        limited = generation.finish_reason is FinishReason.LENGTH
        tokens = self._fresh_tokens(index) if self.return_tokens or self.stream else []
        body: JsonObject = {
            "index": index,
            "content": "" if self.stream else text,
            "tokens": tokens,
            "id_slot": index,
            "stop": True,
            "model": self.model,
            "tokens_predicted": stats.completion_tokens,
            "tokens_evaluated": stats.prompt_tokens,
            "generation_settings": generation_settings(
                sampling, self.max_tokens, stream=self.stream
            ),
            "prompt": "" if handle is None else handle.prompt_text,
            "has_new_line": "\n" in text,
            "truncated": limited and 0 < stats.context_size <= stats.context_used,
            "stop_type": _stop_type(generation),
            "stopping_word": generation.stop_string,
            "tokens_cached": stats.context_used or stats.prompt_tokens,
            "timings": timings(stats),
        }
        if self.probabilities and not self.stream:
            body["completion_probabilities"] = _probabilities(generation.logprobs or ())
        return _chosen_fields(body, self.fields) if self.fields else body

    def _fresh_tokens(self, index: int) -> list[int]:
        """The tokens of a choice since the last call."""
        generated = () if self.choices is None else self.choices.handle(index).generated
        start, self._sent[index] = self._sent.get(index, 0), len(generated)
        return [*generated[start:]]


def _prompt_timings(progress: PromptProgress) -> JsonObject:
    """The `timings` of a prompt that is being read."""
    seconds = progress.seconds if progress.done > progress.cached else 0.0
    return timings(Stats(progress.done, progress.cached, prefill_seconds=seconds))


def _by_token(
    text: str, tokens: Sequence[TokenLogprob]
) -> list[tuple[str, Sequence[TokenLogprob]]]:
    """The text of each token with the token; one pair if the text is cut otherwise."""
    if "".join(token.text for token in tokens) != text:
        return [(text, tokens)]
    return [(token.text, (token,)) for token in tokens]


def _probabilities(tokens: Iterable[TokenLogprob]) -> list[JsonObject]:
    """llama.cpp's `completion_probabilities`."""
    return [_chance(token) | {"top_logprobs": [*map(_chance, token.top)]} for token in tokens]


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


def _chance(chance: TokenProbability) -> JsonObject:
    return {
        "id": chance.id,
        "token": chance.piece.decode("utf-8", "ignore"),
        "bytes": list(chance.piece),
        "logprob": max(chance.logprob, _LOWEST),
    }


def _stop_type(generation: Generation) -> str:
    if generation.finish_reason is FinishReason.LENGTH:
        return "limit"
    return "word" if generation.stop_string else "eos"


RANDOM_SEED = 2**32 - 1
"""llama.cpp's number for a seed of its own choice."""


def generation_settings(sampling: Sampling, max_tokens: int = 0, **others: Any) -> JsonObject:
    """The parameters of a request, under llama.cpp's names; `max_tokens` 0: as many as fit."""
    limit = {0: -1, NO_TOKENS: 0}.get(max_tokens, max_tokens)
    return {
        **{p.llamacpp: getattr(sampling, n) for n, p in PARAMETERS.items() if n != "logprobs"},
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
    return {"bias": None if bias <= BIAS_RANGE[0] else bias, "token": token}

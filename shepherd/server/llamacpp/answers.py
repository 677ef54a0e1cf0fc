"""A generation in the shapes of llama.cpp's `/completion`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from shepherd.backends.base import Generation, Prefilled
from shepherd.events import FinishReason
from shepherd.json_text import frame
from shepherd.logprobs import TokenLogprob, TokenProbability
from shepherd.messages import JsonObject
from shepherd.sampling import Sampling
from shepherd.server.generation import Choices, check_whole
from shepherd.server.llamacpp.generation_settings import generation_settings
from shepherd.server.progress import PromptProgress
from shepherd.server.responses import Frames
from shepherd.server.wire.answers import progress_fields, prompt_timings, timings

_LOWEST = -3.4028234663852886e38
"""llama.cpp's number for what has no probability."""


@dataclass(slots=True)
class CompletionAnswer:
    """The answers to one or more prompts; a list of them if `many`."""

    model: str
    max_tokens: int = 0
    many: bool = False
    stream: bool = False
    probabilities: bool = False
    return_tokens: bool = False
    all_timings: bool = False
    fields: Sequence[str] = ()
    choices: Choices | None = None
    _sent: dict[int, int] = field(default_factory=dict[int, int])

    def attach(self, choices: Choices) -> None:
        """Take the choices that are answered, for their prompts and tokens."""
        self.choices = choices

    def whole(self, generations: Sequence[Generation]) -> JsonObject | list[JsonObject]:
        """The answer, or a list of the answers."""
        answers = [self._final(index, generation) for index, generation in enumerate(generations)]
        return answers if self.many else answers[0]

    async def frames(self, choices: Choices) -> Frames:
        """Yields the pieces of all answers, each answer's last one with its measures."""
        async for index, event, text, logprobs in choices:
            if event is None:
                generation = await choices.result(index)
                check_whole(generation)
                yield frame(self._final(index, generation))
                continue
            if not self.probabilities:
                yield frame(self._piece(index, choices.handle(index), text))
                continue
            for content, tokens in by_token(text, logprobs):
                piece = self._piece(index, choices.handle(index), content)
                yield frame(piece | {"completion_probabilities": probabilities(tokens)})

    def progress(self, progress: PromptProgress) -> str:
        """The frame that tells how far the prompt is read."""
        body: JsonObject = {"index": 0, "content": "", "tokens": [], "stop": False}
        body |= {"prompt_progress": progress_fields(progress)}
        return frame(body | {"timings": prompt_timings(progress)} if self.all_timings else body)

    def _piece(self, index: int, handle: Prefilled, text: str) -> JsonObject:
        stats = handle.stats()
        piece: JsonObject = {
            "index": index,
            "content": text,
            "tokens": self._fresh_tokens(index),
            "stop": False,
            "id_slot": index,
            "tokens_predicted": stats.completion_tokens,
            "tokens_evaluated": handle.prompt_tokens,
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
            body["completion_probabilities"] = probabilities(generation.logprobs or ())
        return chosen_fields(body, self.fields) if self.fields else body

    def _fresh_tokens(self, index: int) -> list[int]:
        """The tokens of a choice since the last call."""
        generated = () if self.choices is None else self.choices.handle(index).generated
        start, self._sent[index] = self._sent.get(index, 0), len(generated)
        return [*generated[start:]]


def by_token(text: str, tokens: Sequence[TokenLogprob]) -> list[tuple[str, Sequence[TokenLogprob]]]:
    """The text of each token with the token; one pair if the text is cut otherwise."""
    if "".join(token.text for token in tokens) != text:
        return [(text, tokens)]
    return [(token.text, (token,)) for token in tokens]


def probabilities(tokens: Iterable[TokenLogprob]) -> list[JsonObject]:
    """llama.cpp's `completion_probabilities`."""
    return [_chance(token) | {"top_logprobs": [*map(_chance, token.top)]} for token in tokens]


def chosen_fields(body: JsonObject, paths: Iterable[str]) -> JsonObject:
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

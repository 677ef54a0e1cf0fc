"""Parameters of an engine from those of a session, and updates of an answer from its tokens."""

import codecs
import secrets
from collections.abc import Mapping
from contextlib import aclosing
from time import perf_counter
from typing import Any

from msgspec import Struct

from shepherd import errors, events, messages
from shepherd.backends.inprocess.answer import Answer, Finished, Text, Update
from shepherd.backends.inprocess.prompt import Prompt
from shepherd.backends.inprocess.special import Vocabulary
from shepherd.backends.output.markers import StopMatcher
from shepherd.backends.tensorrt.engine import Step, TokenRequest, TokenStream
from shepherd.sampling import DEFAULT_SAMPLING, Sampling, TokenLogprob, TokenProbability
from shepherd.session import OutputFormat, Session

_REASONS = {
    "stop": events.FinishReason.STOP,
    "length": events.FinishReason.LENGTH,
    "timeout": events.FinishReason.LENGTH,
    "cancelled": events.FinishReason.CANCELLED,
}


class Request(Struct, frozen=True):
    """A prompt and how to answer it; `generation` is the request to the engine, without a limit."""

    prompt: Prompt
    sampling: Sampling
    tools: list[messages.ToolSpec]
    generation: TokenRequest


class Generating:
    """One answer in progress."""

    def __init__(self, request: Request, vocab: Vocabulary, context_size: int) -> None:
        sampling = request.sampling
        self.tokens: list[int] = []
        self.cached_tokens = 0
        self._prompt_tokens = len(request.prompt.tokens)
        self._context_size = context_size
        self._vocab = vocab
        self._end_tokens = frozenset[int](() if sampling.ignore_eos else vocab.ends)
        self._top_logprobs = sampling.logprobs
        """How many of the likeliest tokens are reported; None without log probabilities."""
        self._stop = StopMatcher(sampling.stop or ())
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._finish_reason: events.FinishReason | None = None
        self._began_at = perf_counter()
        self._first_token_at = 0.0

    async def run(self, stream: TokenStream, answer: Answer) -> None:
        """Pass the engine's output to the answer until it ends; raises BackendError."""
        async with aclosing(stream.steps()) as steps:
            async for step in steps:
                answer.take(self._updates(step))
                if answer.cancelled or self._finish_reason is not None:
                    break
        if not answer.cancelled and self._finish_reason is None:
            raise errors.BackendError("TensorRT-LLM ended the answer without saying why.")

    @property
    def stats(self) -> events.Stats:
        """The measurements so far; the time before the first token counts as reading the prompt."""
        now = perf_counter()
        first_token_at = self._first_token_at or now  # 0.0: no token has come yet
        return events.Stats(
            prompt_tokens=self._prompt_tokens,
            cached_tokens=min(self.cached_tokens, self._prompt_tokens),
            completion_tokens=len(self.tokens),
            prefill_seconds=first_token_at - self._began_at,
            decode_seconds=now - first_token_at,
            context_used=self._prompt_tokens + len(self.tokens),
            context_size=self._context_size,
        )

    def _updates(self, step: Step) -> list[Update]:
        """The text of the step's tokens, and the end of the answer if it ends here."""
        if step.tokens and not self._first_token_at:
            self._first_token_at = perf_counter()
        self.cached_tokens = max(self.cached_tokens, step.cached)
        logprobs = step.logprobs or ()
        updates: list[Update] = []
        for place, token in enumerate(step.tokens):
            if token in self._end_tokens:
                self._finish_reason = events.FinishReason.STOP
                break
            self.tokens.append(token)
            at_place: Mapping[int, float] = logprobs[place] if place < len(logprobs) else {}
            updates += self._text_updates(token, at_place)
            if self._stop.hit is not None:
                self._finish_reason = events.FinishReason.STOP
                break
        if self._finish_reason is None and step.finish:
            self._finish_reason = _REASONS.get(step.finish, events.FinishReason.STOP)
        if self._finish_reason is None:
            return updates
        if self._stop.hit is None:  # what was held back can no longer become a stop string
            rest = self._stop.feed(self._decoder.decode(b"", final=True)) + self._stop.finish()
            updates += [Text(rest)] if rest else []
        stop_string = self._stop.hit or ""
        finished = Finished(self._finish_reason, self.stats, tuple(self.tokens), stop_string)
        return [*updates, finished]

    def _text_updates(self, token: int, logprobs: Mapping[int, float]) -> list[Update]:
        """The text that this token completes, and its log probability if requested.

        `logprobs` are those of the likeliest tokens in its place, by their numbers.
        """
        piece = self._vocab.piece(token)
        text = self._stop.feed(self._decoder.decode(piece))
        if self._top_logprobs is None:
            return [Text(text)] if text else []
        likeliest = sorted(logprobs.items(), key=lambda item: item[1], reverse=True)
        top = tuple(
            TokenProbability(self._vocab.piece(number), logprob)
            for number, logprob in likeliest[: self._top_logprobs]
        )
        return [Text(text, TokenLogprob(piece, logprobs.get(token, 0.0), top))]


_PLAIN = {
    "penalty_repeat": "repetition_penalty",
    "penalty_freq": "frequency_penalty",
    "penalty_present": "presence_penalty",
    "min_p": "min_p",
}
"""Parameters that are sent if they have an effect."""

_MISSING: Mapping[str, tuple[str, float]] = {
    "typical_p": ("locally typical sampling", 1.0),
    "top_n_sigma": ("top-n-sigma", 0.0),
    "xtc_probability": ("XTC", 0.0),
    "dynatemp_range": ("dynamic temperature", 0.0),
    "dry_multiplier": ("DRY", 0.0),
    "mirostat": ("Mirostat", 0),
}
"""Parameters that it lacks, each with the value that turns it off."""


def sampling_params(
    sampling: Sampling, unsupported: Mapping[str, str], ends: tuple[int, ...]
) -> Any:
    """The arguments of `SamplingParams` except the limit, from complete parameters.

    `unsupported` names parameters that would be ignored; `ends` end an answer. Raises
    InvalidRequestError with the names of unsupported parameters.
    """
    _refuse_unsupported(sampling, unsupported)
    # Text is decoded here: its own detokenizer would drop special tokens and stop strings.
    result: dict[str, Any] = {"detokenize": False}
    result |= _shape(sampling)
    # Without a seed it would always use the same one.
    result["seed"] = secrets.randbits(32) if sampling.seed is None else sampling.seed
    for ours, theirs in _PLAIN.items():
        value = getattr(sampling, ours)
        if value != getattr(DEFAULT_SAMPLING, ours):
            result[theirs] = value
    if sampling.ignore_eos:
        result["ignore_eos"] = True
    elif ends:
        result["stop_token_ids"] = list(ends)
    if sampling.logprobs is not None:
        result["logprobs"] = max(1, sampling.logprobs)
    return result


def guide(session: Session, *, guides: bool) -> Mapping[str, Any] | None:
    """The arguments of `GuidedDecodingParams`, None for a free answer.

    Raises InvalidRequestError for a format that can't be enforced.
    """
    if session.tool_choice is not None:
        raise errors.InvalidRequestError(
            "tool_choice: TensorRT-LLM in this process can't be made to call a tool; leave the "
            "choice to the model.",
            "tool_choice",
        )
    output_format: OutputFormat | None = session.output_format
    if output_format is None:
        return None
    if not guides:
        raise errors.InvalidRequestError(
            "response_format: guided decoding is off for this provider; set its guided-decoding "
            "to xgrammar.",
            "response_format",
        )
    if output_format.schema is not None:
        return {"json": output_format.schema}
    return {"grammar": output_format.grammar}


def _shape(sampling: Sampling) -> dict[str, Any]:
    """Temperature, top-k and top-p; greedy selection is written in a way that all versions know."""
    if not sampling.temperature or not sampling.top_p or sampling.top_k == 1:
        return {"top_k": 1}
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k or 0,
        "top_p": sampling.top_p,
    }


def _refuse_unsupported(sampling: Sampling, unsupported: Mapping[str, str]) -> None:
    """Raise InvalidRequestError for a parameter that would not be applied."""
    for name, (what, off_value) in _MISSING.items():
        value = getattr(sampling, name)
        # any negative number switches top_n_sigma off
        is_off = value is None or value == off_value or (name == "top_n_sigma" and value < 0)
        if not is_off:
            raise _refusal(name, f"TensorRT-LLM has no {what}; set it to {off_value:g}")
    if sampling.samplers not in (None, DEFAULT_SAMPLING.samplers):
        raise _refusal("samplers", "TensorRT-LLM has one order of samplers; leave it out")
    if sampling.logit_bias:
        raise _refusal("logit_bias", "TensorRT-LLM in this process has none; leave it out")
    for name, reason in unsupported.items():
        value = getattr(sampling, name)
        if value is not None and value != getattr(DEFAULT_SAMPLING, name):
            raise _refusal(name, reason)


def _refusal(name: str, reason: str) -> errors.InvalidRequestError:
    return errors.InvalidRequestError(f"{name}: {reason}.", name)

"""Parts of answers that several APIs share."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from shepherd import events, messages, sampling
from shepherd.backends.base import Generation, ModelInfo
from shepherd.server.generation import ChoicePiece, PromptProgress
from shepherd.version import __version__

IMPOSSIBLE = -9999.0
"""OpenAI's number for what has no probability, since JSON has no infinity."""

_FINGERPRINT_DIGITS = 12


def new_id(prefix: str = "", characters: int = 24) -> str:
    """An identifier that nobody can guess."""
    return prefix + secrets.token_hex(characters // 2)


def texts_of(generation: Generation) -> Iterator[ChoicePiece]:
    """The texts of a whole answer, as a stream of one choice has them: first the reasoning."""
    message = generation.message
    if message.reasoning:
        yield ChoicePiece(0, events.CallbackEvent.THINKING, message.reasoning)
    if message.content:
        logprobs = tuple(generation.logprobs or ())
        yield ChoicePiece(0, events.CallbackEvent.CONTENT, message.content, logprobs)


def calls_of(generation: Generation, *, one_call: bool) -> tuple[messages.ToolCall, ...]:
    """The calls that the client gets; with `one_call`, its request allows no others beside it."""
    calls = generation.message.tool_calls
    return calls[:1] if one_call else calls


def reasoning_tokens(generation: Generation) -> int:
    """How many of the generated tokens are reasoning: an estimate by the share of its characters.

    Backends count the tokens of an answer as a whole. All of them are reasoning where nothing
    else was written, none where no reasoning was.
    """
    message = generation.message
    reasoning = len(message.reasoning)
    if not reasoning:
        return 0
    calls = sum(len(call.name) + len(call.arguments_json) for call in message.tool_calls)
    written = reasoning + len(message.content) + calls
    return round(generation.stats.completion_tokens * reasoning / written)


def token_logprobs(tokens: Sequence[sampling.TokenLogprob]) -> list[messages.JsonObject]:
    """Each token with its probability and those of the likeliest ones, as OpenAI writes them."""
    return [
        _probability(token) | {"top_logprobs": [_probability(likely) for likely in token.top]}
        for token in tokens
    ]


def _probability(token: sampling.TokenProbability) -> messages.JsonObject:
    """One token with its log probability, which may be that of an impossible one."""
    return {
        "token": token.text,
        "logprob": max(token.logprob, IMPOSSIBLE),
        "bytes": list(token.piece),
    }


def fingerprint(model: ModelInfo) -> str:
    """A name for what answers; it changes with Shepherd, the backend, and the model."""
    parts = (__version__, model.backend, model.id, str(model.context_size))
    return "b" + sha256("\0".join(parts).encode()).hexdigest()[:_FINGERPRINT_DIGITS]


def completion_usage(
    prompts: Iterable[events.Stats], generations: Iterable[Generation]
) -> messages.JsonObject:
    """OpenAI's usage object of one measure for each prompt, and of all answers to them.

    Cached tokens are part of the prompts' tokens, those of the reasoning part of the answers'.
    """
    counted = [(stats.prompt_tokens, stats.cached_tokens) for stats in prompts]
    answers = list(generations)
    prompt_tokens = sum(tokens for tokens, _ in counted)
    completion_tokens = sum(generation.stats.completion_tokens for generation in answers)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(cached for _, cached in counted)},
        "completion_tokens_details": {"reasoning_tokens": sum(map(reasoning_tokens, answers))},
    }


def timings(stats: events.Stats) -> messages.JsonObject:
    """How long prompt and answer took: llama.cpp's `timings`."""
    read_tokens = stats.prompt_tokens - stats.cached_tokens
    body: messages.JsonObject = {
        "cache_n": stats.cached_tokens,
        **_pace("prompt", read_tokens, read_tokens, stats.prefill_seconds),
        # the first token comes of the prompt: it takes no step of its own
        **_pace(
            "predicted", stats.completion_tokens, stats.completion_tokens - 1, stats.decode_seconds
        ),
    }
    if stats.drafted_tokens:  # as in llama.cpp's answers, only with speculation
        body["draft_n"] = stats.drafted_tokens
        body["draft_n_accepted"] = stats.accepted_tokens
    return body


def _pace(name: str, tokens: int, steps: int, seconds: float) -> messages.JsonObject:
    """The fields `prompt_n`, `prompt_ms` and so on for the name `prompt`; 0 without steps."""
    milliseconds = round(seconds * 1000, 3)
    has_pace = steps > 0 and milliseconds > 0
    return {
        f"{name}_n": tokens,
        f"{name}_ms": milliseconds,
        f"{name}_per_token_ms": milliseconds / steps if has_pace else 0.0,
        f"{name}_per_second": 1000 * steps / milliseconds if has_pace else 0.0,
    }


def progress_fields(progress: PromptProgress) -> messages.JsonObject:
    """How far a prompt is read: llama.cpp's `prompt_progress`."""
    return {
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.done,
        "time_ms": round(progress.seconds * 1000),
    }

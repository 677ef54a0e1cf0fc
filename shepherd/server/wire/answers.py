"""Parts of answers that several APIs share."""

import secrets
from collections.abc import Iterator, Sequence
from hashlib import sha256

from shepherd import events, messages, sampling
from shepherd.backends.base import Generation, ModelInfo
from shepherd.server.generation import ChoicePiece, PromptProgress
from shepherd.version import __version__

IMPOSSIBLE = -9999.0
"""OpenAI's number for what has no probability, since JSON has no infinity."""

_DIGITS = 12


def new_id(prefix: str = "", characters: int = 24) -> str:
    """An identifier that nobody can guess."""
    return prefix + secrets.token_hex(characters // 2)


def texts_of(generation: Generation, choice: int = 0) -> Iterator[ChoicePiece]:
    """The texts of a whole answer, as a stream has them: first the reasoning."""
    message = generation.message
    if message.reasoning:
        yield ChoicePiece(choice, events.CallbackEvent.THINKING, message.reasoning)
    if message.content:
        logprobs = tuple(generation.logprobs or ())
        yield ChoicePiece(choice, events.CallbackEvent.CONTENT, message.content, logprobs)


def reasoning_tokens(generation: Generation) -> int:
    """How many of the generated tokens are reasoning: an estimate by the share of its characters.

    Backends count the tokens of an answer as a whole. All of them are reasoning where nothing
    else was written, none where no reasoning was.
    """
    message, tokens = generation.message, generation.stats.completion_tokens
    reasoning = len(message.reasoning)
    calls = sum(len(call.name) + len(call.arguments_json) for call in message.tool_calls)
    rest = len(message.content) + calls
    return round(tokens * reasoning / (reasoning + rest)) if reasoning else 0


def token_logprobs(tokens: Sequence[sampling.TokenLogprob]) -> list[messages.JsonObject]:
    """Each token with its probability and those of the likeliest ones, as OpenAI writes them."""
    return [_probability(t) | {"top_logprobs": [_probability(p) for p in t.top]} for t in tokens]


def _probability(token: sampling.TokenProbability) -> messages.JsonObject:
    return {
        "token": token.text,
        "logprob": max(token.logprob, IMPOSSIBLE),
        "bytes": list(token.piece),
    }


def fingerprint(model: ModelInfo) -> str:
    """A name for what answers; it changes with Shepherd, the backend, and the model."""
    parts = (__version__, model.backend, model.id, str(model.context_size))
    return "b" + sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]


def timings(stats: events.Stats) -> messages.JsonObject:
    """How long prompt and answer took: llama.cpp's `timings`."""
    prompt = stats.prompt_tokens - stats.cached_tokens
    drafts: messages.JsonObject = {
        "draft_n": stats.drafted_tokens,
        "draft_n_accepted": stats.accepted_tokens,
    }
    return {
        "cache_n": stats.cached_tokens,
        **_pace("prompt", prompt, stats.prefill_seconds),
        **_pace("predicted", stats.completion_tokens, stats.decode_seconds),
        **(drafts if stats.drafted_tokens else {}),
    }


def _pace(name: str, tokens: int, seconds: float) -> messages.JsonObject:
    return {
        f"{name}_n": tokens,
        f"{name}_ms": round(seconds * 1000, 3),
        f"{name}_per_token_ms": round(seconds * 1000 / max(1, tokens), 3),
        f"{name}_per_second": round(tokens / seconds, 3) if seconds > 0 else 0.0,
    }


def progress_fields(progress: PromptProgress) -> messages.JsonObject:
    """How far a prompt is read: llama.cpp's `prompt_progress`."""
    return {
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.done,
        "time_ms": round(progress.seconds * 1000),
    }

"""Parts of answers that llama.cpp's clients look for in every API."""

from functools import lru_cache
from hashlib import sha256

from shepherd.backends.base import GenerationStats, ModelInfo
from shepherd.messages import JsonObject
from shepherd.server.progress import PromptProgress
from shepherd.version import __version__

_DIGITS = 12


def fingerprint(model: ModelInfo) -> str:
    """A name for what answers; it changes with Shepherd, the backend, and the model."""
    return _digest(model.backend, model.id, str(model.context_size))


@lru_cache(maxsize=64)
def _digest(*model: str) -> str:
    parts = (__version__, *model)
    return "b" + sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]


def timings(stats: GenerationStats) -> JsonObject:
    """How long prompt and answer took: llama.cpp's `timings`."""
    prompt = stats.prompt_tokens - stats.cached_tokens
    drafts: JsonObject = {
        "draft_n": stats.drafted_tokens,
        "draft_n_accepted": stats.accepted_tokens,
    }
    return {
        "cache_n": stats.cached_tokens,
        **_pace("prompt", prompt, stats.prefill_seconds),
        **_pace("predicted", stats.completion_tokens, stats.decode_seconds),
        **(drafts if stats.drafted_tokens else {}),
    }


def progress_fields(progress: PromptProgress) -> JsonObject:
    """How far a prompt is read: llama.cpp's `prompt_progress`."""
    return {
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.done,
        "time_ms": round(progress.seconds * 1000),
    }


def prompt_timings(progress: PromptProgress) -> JsonObject:
    """The `timings` of a prompt that is being read."""
    seconds = progress.seconds if progress.done > progress.cached else 0.0
    return timings(GenerationStats(progress.done, progress.cached, prefill_seconds=seconds))


def _pace(name: str, tokens: int, seconds: float) -> JsonObject:
    return {
        f"{name}_n": tokens,
        f"{name}_ms": round(seconds * 1000, 3),
        f"{name}_per_token_ms": round(seconds * 1000 / max(1, tokens), 3),
        f"{name}_per_second": round(tokens / seconds, 3) if seconds > 0 else 0.0,
    }

"""Flash attention or not, and how many tokens are computed at once."""

from dataclasses import dataclass
from typing import NamedTuple

from shepherd.backends.llamacpp.native.devices import device_limits, has_gpu
from shepherd.config.llamacpp import LlamaCppSection

FLASH_AUTO, FLASH_OFF, FLASH_ON = -1, 0, 1
"""llama.cpp's own numbers (`llama_flash_attn_type`)."""

MAX_SCORES = 256 * 1024**2
WEIGHTS_PER_SCORES = 4
"""Without flash attention the scores of a batch may take this many bytes, or this fraction of the
weights' bytes if that is more."""

MIN_UBATCH = 128
"""Larger batches are not faster on a CPU: SmolLM2 reads 85 tokens per second in batches of 32, and
82 in batches of 512."""

_SCORE_BYTES = 4
_TYPES = {"auto": FLASH_AUTO, "off": FLASH_OFF, "on": FLASH_ON}


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What a context's parameters depend on.

    `weights` are bytes, and `heads` is the largest number of a layer's query heads. `window` and
    `trained_context` are tokens; the window is 0 without a sliding one.
    """

    weights: int
    heads: int
    window: int
    trained_context: int


class Attention(NamedTuple):
    """`flash` is llama.cpp's `flash_attn_type`, `ubatch` the tokens that are computed at once."""

    flash: int
    ubatch: int


def batch_size(settings: LlamaCppSection) -> int:
    """Tokens of a prompt that are submitted at once: the setting, or what suits the device."""
    return settings.n_batch or max(device_limits().batch, settings.largest_ubatch)


def attention(settings: LlamaCppSection, traits: ModelTraits, ubatch: int = 0) -> Attention:
    """The settings; with "auto", flash attention is off on a CPU if the scores are small enough.

    Behind 3,000 tokens llama.cpp's flash attention needs 1.8 times as long for one token of
    SmolLM2, and 2.3 times as long for 2 to 63 tokens. From 64 tokens on it needs 0.8 times as long.
    It skips cells outside of a sliding window, and a quantized V cache needs it. `ubatch` is used
    instead of the settings', unless it is 0.
    """
    whole = ubatch or min(settings.largest_ubatch, batch_size(settings))
    if settings.deterministic:
        return _deterministic(settings, traits, whole)
    if settings.flash_attention != "auto":
        return Attention(_TYPES[settings.flash_attention], whole)
    if has_gpu() or traits.window or not _has_plain_values(settings):
        return Attention(FLASH_AUTO, whole)
    fitting = _fitting(settings, traits)
    if fitting >= whole:
        return Attention(FLASH_OFF, whole)
    if ubatch or settings.ubatch or fitting < MIN_UBATCH:
        return Attention(FLASH_AUTO, whole)
    return Attention(FLASH_OFF, fitting // MIN_UBATCH * MIN_UBATCH)


def _deterministic(settings: LlamaCppSection, traits: ModelTraits, whole: int) -> Attention:
    """Flash attention is off, because its kernels differ with the number of tokens.

    A quantized V cache needs it; it then has the same kernel for any number.
    """
    if not _has_plain_values(settings):
        return Attention(FLASH_ON, whole)
    fitting = _fitting(settings, traits) // MIN_UBATCH * MIN_UBATCH
    return Attention(FLASH_OFF, min(whole, max(MIN_UBATCH, fitting)))


def _fitting(settings: LlamaCppSection, traits: ModelTraits) -> int:
    """The tokens whose scores are small enough to be computed at once."""
    limit = max(MAX_SCORES, traits.weights // WEIGHTS_PER_SCORES)
    context = settings.context_size or traits.trained_context
    return limit // max(1, _SCORE_BYTES * traits.heads * context)


def _has_plain_values(settings: LlamaCppSection) -> bool:
    return settings.cache_type_v in ("f32", "f16", "bf16")

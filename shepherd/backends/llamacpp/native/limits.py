"""Sizes of batches and the like that depend on the device."""

from dataclasses import dataclass, replace

from shepherd.backends.llamacpp.native.devices import has_gpu


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Numbers for a kind of device, from measurements or from what is known of it.

    `batch`: tokens of a prompt that are submitted at once, if `n_batch` does not say it.
    `initial_chunk`: tokens of the first step of a prompt, before any measurement.
    `min_chunk`, `min_shared_chunk`: the smallest steps of a prompt, alone and beside others.
    `answers_show_pace`: whether the tokens of answers show how fast prompts are read.
    `token_share`: the assumed cost of one more token as a share of a batch's time, before any
    measurement.
    `draft_chunk`: tokens that the draft model reads per step while it catches up.
    `crowding`: new tokens times tokens of an idle conversation, above which the idle one is swapped
    out first; None if that is learned from measurements.
    `full_steps`: steps of a multiple of one of these sizes are fast, the largest size first.
    """

    batch: int
    initial_chunk: int
    min_chunk: int
    min_shared_chunk: int
    answers_show_pace: bool
    token_share: float
    draft_chunk: int
    crowding: int | None
    full_steps: tuple[int, ...] = ()


CPU_LIMITS = DeviceLimits(
    batch=512,
    initial_chunk=128,
    min_chunk=32,
    min_shared_chunk=16,
    answers_show_pace=True,
    token_share=0.25,
    draft_chunk=128,
    crowding=4 * 1024,
)
"""Measured on two cores. Below 240 tokens per second two steps take longer than 0.2 s. Swapping
out costs less than attention over masked tokens: where six conversations take turns, a turn takes
0.4 to 0.9 times as long as if they stay, and with two of them 0.97 to 1.1 times."""

CPU_FLASH_LIMITS = replace(CPU_LIMITS, min_chunk=64, full_steps=(128, 64))
"""With flash attention. Behind 3,000 tokens a step of 64 tokens takes 1.1 s and one of 63 takes
2.9 s (SmolLM2), because llama.cpp computes 64 rows as matrices and fewer rows one by one. Each
thread pads its rows to 64: Gemma 3 270M reads 128 tokens behind 6,144 in 0.47 s, and 140 in 0.69
s."""

GPU_LIMITS = DeviceLimits(
    batch=2048,
    initial_chunk=256,
    min_chunk=128,
    min_shared_chunk=128,
    answers_show_pace=False,
    token_share=0.02,
    draft_chunk=512,
    crowding=None,
)
"""Not measured here. `batch` is llama.cpp's own default (`llama_context_default_params`). A GPU
reads all weights for a batch of any size. A batch therefore takes about as long as one token, up to
the size at which arithmetic takes as long as reading. By the data sheets that is at 160 to 300
tokens: an RTX 4090 has 165 TFLOPS and 1.0 TB/s, an H100 989 and 3.35, an H200 989 and 4.8."""


def device_limits() -> DeviceLimits:
    """The limits of the device that llama.cpp computes on here."""
    return GPU_LIMITS if has_gpu() else CPU_LIMITS

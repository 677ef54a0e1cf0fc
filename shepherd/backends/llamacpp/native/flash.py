"""Whether flash attention is the faster kind of attention on this processor.

That differs by processor, by the build of llama.cpp and by the width of a model's heads. On a Xeon
with heads of 64 numbers it takes 1.5 times as long for one token behind 3,000, and 0.5 to 0.8 times
for 128 tokens; with heads of 256 it takes longer for both. The rest of a model is the same for
either. So only one group of heads is computed, in one thread and by processor time, which holds on
a busy machine too.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import thread_time
from typing import Any

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.graphs import least_seconds
from shepherd.config.paths import Paths

_CELLS = 3072
"""The tokens before the new ones."""
_LARGEST_HEAD, _LARGEST_GROUP = 256, 8
_STEP: Mapping[int, int] = {128: 4, 1: 128}
"""What an agent does in a step: it reads 512 tokens, and writes 128, one after the other."""
_BYTES = 256 * 1024**2
"""More than the tensors take; untouched pages are free."""


@cache
def flash_is_faster(head: int, group: int) -> bool:
    """For heads of so many numbers, of which a group shares its keys and values.

    Measured in half a second at the first time, then remembered in the user's cache.
    """
    head, group = min(head, _LARGEST_HEAD), min(group, _LARGEST_GROUP)
    status = Path(bindings().__file__).stat()
    machine = f"{_processor()} {status.st_size} {status.st_mtime_ns} {head} {group}"
    name = f"flash-{hashlib.sha256(machine.encode()).hexdigest()[:32]}"
    file = Paths.from_env(os.environ).tried_models / name
    with suppress(OSError):
        return file.read_text() == "faster"
    is_faster = step_seconds(head, group, flash=True) < step_seconds(head, group, flash=False)
    with suppress(OSError):  # it is measured again then
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("faster" if is_faster else "slower")
    return is_faster


def step_seconds(head: int, group: int, *, flash: bool) -> float:
    """The time of a group's attention in a step of an agent."""
    times = ((count, seconds(tokens, head, group, flash=flash)) for tokens, count in _STEP.items())
    return sum(count * each for count, each in times)


def seconds(tokens: int, head: int, group: int, *, flash: bool) -> float:
    """The least time of attention for new tokens."""

    def attention(lib: Any, context: Any) -> Any:
        """The result, of tensors in the order in which llama.cpp keeps them."""

        def tensor(kind: int, *sizes: int) -> Any:
            return lib.ggml_new_tensor_3d(context, kind, *sizes)

        f32, f16 = bindings().GGML_TYPE_F32, bindings().GGML_TYPE_F16
        q = lib.ggml_permute(context, tensor(f32, head, group, tokens), 0, 2, 1, 3)
        k = tensor(f16, head, _CELLS, 1)
        if flash:
            v, mask = tensor(f16, head, _CELLS, 1), tensor(f16, _CELLS, tokens, 1)
            return lib.ggml_flash_attn_ext(context, q, k, v, mask, 1.0, 0.0, 0.0)
        v, mask = tensor(f16, _CELLS, head, 1), tensor(f32, _CELLS, tokens, 1)
        scores = lib.ggml_mul_mat(context, k, q)
        weights = lib.ggml_soft_max_ext(context, scores, mask, 1.0, 0.0)
        return lib.ggml_mul_mat(context, v, weights)

    return least_seconds(attention, _BYTES, 1, thread_time)


def _processor() -> str:
    """What Linux calls the processor, and its abilities; other systems stay on one processor."""
    with suppress(OSError):
        return Path("/proc/cpuinfo").read_text().partition("\n\n")[0].partition("model")[2]
    return ""

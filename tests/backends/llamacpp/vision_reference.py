"""What llama.cpp's own helper for images computes, to compare the engine with."""

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shepherd.backends.llamacpp.native.bindings import bindings, image_bindings
from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.images import Image
from tests.backends.llamacpp.support import EXACT, settings


def first_logprobs(
    model_path: Path, projector: Path, before: Sequence[int], image: Image, after: Sequence[int]
) -> list[float]:
    """The log probabilities of the token after text, an image and text.

    The image is one chunk of the projector, without the texts around it.
    """
    own = settings(**EXACT)
    model = NativeModel(model_path, model_params(own, {}))
    context = NativeContext(model, context_params(own, 1, model.traits))
    lib = image_bindings()
    params = lib.mtmd_context_params_default()
    params.use_gpu = params.warmup = params.print_timings = False
    params.n_threads = 1
    vision: Any = lib.mtmd_init_from_file(str(projector).encode(), model.handle, params)
    chunks: Any = lib.mtmd_input_chunks_init()
    try:
        _divide(lib, vision, image, chunks)
        context.decode([Span(0, 0, before, wants_logits=False)])
        position = ctypes.c_int32(len(before))
        chunk = next(
            chunk
            for i in range(lib.mtmd_input_chunks_size(chunks))
            if lib.mtmd_input_chunk_get_type(chunk := lib.mtmd_input_chunks_get(chunks, i)) == 1
        )
        evaluate = lib.mtmd_helper_eval_chunk_single
        arguments = (position, 0, context.batch_size, False, ctypes.byref(position))
        assert evaluate(vision, context.handle, chunk, *arguments) == 0
        context.decode([Span(0, position.value, after, wants_logits=True)])
        logits = context.logits(len(after) - 1, model.vocab.size)
    finally:
        lib.mtmd_input_chunks_free(chunks)
        lib.mtmd_free(vision)
        context.close()
        model.close()
    highest = max(logits)
    total = highest + math.log(sum(math.exp(logit - highest) for logit in logits))
    return [logit - total for logit in logits]


def _divide(lib: Any, vision: Any, image: Image, chunks: Any) -> None:
    assert bindings()
    buffer = (ctypes.c_uint8 * len(image.data)).from_buffer_copy(image.data)
    bitmap = lib.mtmd_helper_bitmap_init_from_buf(vision, buffer, len(image.data), False)
    marker: bytes = lib.mtmd_default_marker()
    text = lib.mtmd_input_text(marker, len(marker), False, True)
    bitmaps = (lib.mtmd_bitmap_p_ctypes * 1)(bitmap)
    assert lib.mtmd_tokenize(vision, chunks, ctypes.byref(text), bitmaps, 1) == 0
    lib.mtmd_bitmap_free(bitmap)

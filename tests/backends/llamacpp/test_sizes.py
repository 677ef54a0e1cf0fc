"""The estimates of a model's memory, beside what llama.cpp reserves on the CPU."""

import logging
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shepherd.backends.llamacpp.native.bindings import bindings, logger
from shepherd.backends.llamacpp.native.gguf import GgufHeader, check_model_file
from shepherd.backends.llamacpp.native.params import ModelTraits, context_params, model_params
from shepherd.backends.llamacpp.native.sizes import model_sizes
from shepherd.config.llamacpp import LlamaCppSection
from tests.backends.llamacpp.support import PUP, settings
from tests.backends.llamacpp.tiny_table import WRITERS
from tests.backends.llamacpp.wide import SHAPES, write_wide

MIB = 1024 * 1024
TRAITS = ModelTraits(MIB, heads=2, window=0, trained_context=512)
ROUNDED = 0.006 * MIB
"""llama.cpp writes hundredths of a MiB."""

KINDS = ["pup", "llama", "moe", "gemma", "mamba", "hybrid", "lfm2", "qwen35", *WRITERS]
_BUFFER = re.compile(r"(model|KV|RS|compute) buffer size = +([\d.]+) MiB")
NO_MAPPING = 0
SEQUENCES = 3


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param in WRITERS:
        return WRITERS[request.param](tmp_path / f"tiny-{request.param}.gguf")
    return PUP if request.param == "pup" else request.getfixturevalue(request.param)


@contextmanager
def reserved(path: Path, own: LlamaCppSection, *, computes: bool) -> Generator[dict[str, float]]:
    """The bytes of llama.cpp's buffers, by their kind; without weights unless it `computes`."""
    lib: Any = bindings()
    params = model_params(own, {})
    params.use_extra_bufts = False  # weights in the order of AMX are larger than the file's
    if not computes:
        params.no_alloc, params.load_mode = True, NO_MAPPING
    with logged() as lines:
        handle = lib.llama_model_load_from_file(str(path).encode(), params)
        context = lib.llama_init_from_model(handle, context_params(own, SEQUENCES, TRAITS))
    try:
        sizes: dict[str, float] = {}
        for kind, size in _BUFFER.findall("\n".join(lines)):
            sizes[kind] = sizes.get(kind, 0.0) + float(size) * MIB
        yield sizes
    finally:
        lib.llama_free(context)
        lib.llama_model_free(handle)


@contextmanager
def logged() -> Generator[list[str]]:
    """What llama.cpp logs meanwhile."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, level = Lines(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def test_weights_and_cache_are_exact(model: Path) -> None:
    own = settings(context_size=1024, cache_type_k="q8_0", flash_attention="on", gpu_layers=0)
    if model.stem.endswith(("mamba", "hybrid", "latent")):
        own = settings(context_size=1024, gpu_layers=0)
    sizes = model_sizes(check_model_file(model), own)
    with reserved(model, own, computes=True) as real:
        assert real["model"] == pytest.approx(sizes.weights, abs=2 * ROUNDED)
        cache = 1024 * sum(sizes.cells) + SEQUENCES * sum(sizes.states)
        assert real.get("KV", 0) + real.get("RS", 0) == pytest.approx(cache, abs=2 * ROUNDED)
    assert sizes.keeps_state == ("RS" in real)


each_attention = pytest.mark.parametrize("flash", ["on", "off"])


@each_attention
@pytest.mark.parametrize("context", [1024, 65_536])
@pytest.mark.parametrize("ubatch", [64, 512])
def test_the_buffer_for_computing_is_about_right(
    model: Path, flash: str, context: int, ubatch: int
) -> None:
    """Left out are what llama.cpp copies for a latent vector without flash attention, and what it
    copies of states, which is much only beside a small batch and context.
    """
    kind = model.stem.removeprefix("tiny-")
    if (kind, flash) == ("latent", "off") or (kind, context, ubatch) == ("nemotron", 1024, 64):
        pytest.skip("not estimated")
    check_buffer(model, check_model_file(model), flash, context, ubatch)


@each_attention
@pytest.mark.parametrize("context", [4096, 65_536])
@pytest.mark.parametrize("name", SHAPES)
def test_the_buffer_of_a_model_of_real_size_is_about_right(
    tmp_path: Path, name: str, flash: str, context: int
) -> None:
    shape = SHAPES[name]
    path = write_wide(tmp_path / f"{name}.gguf", shape)
    header = replace(check_model_file(path), vocabulary=shape.vocabulary)
    check_buffer(path, header, flash, context, 512)


def check_buffer(path: Path, header: GgufHeader, flash: str, context: int, ubatch: int) -> None:
    """Compare the estimate with llama.cpp's reservation: at most 15 % too small or too large."""
    own = settings(context_size=context, ubatch=ubatch, flash_attention=flash, gpu_layers=0)
    estimate = model_sizes(header, own).compute(context, ubatch, flash=flash == "on")
    with reserved(path, own, computes=False) as real:
        assert estimate == pytest.approx(real["compute"], rel=0.15)

"""LoRA adapters on a random model: what they add, what is refused, what they leave behind."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.native.model import (
    Adapter,
    NativeAdapters,
    NativeModel,
    configured_adapters,
)
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.errors import ConfigError, ModelLoadError
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.support import Recorder, conversation, loaded, settings

PROMPT = [30, 40, 50, 60]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_lora(tmp_path_factory.mktemp("lora") / "lora.gguf")[0]


def logits(path: Path, *adapters: Adapter) -> list[float]:
    model = NativeModel(path, model_params(settings(), {}))
    on_model = NativeAdapters(model, adapters)
    context = NativeContext(model, context_params(settings(), 1, model.traits))
    on_model.apply(context.handle)
    context.decode([Span(0, 0, PROMPT, wants_logits=True)])
    found = context.logits(len(PROMPT) - 1, model.vocab.size)
    context.close()
    model.close()
    return found


STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    pages = STATM.read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def refused(model: Path, adapter: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        logits(model, Adapter(adapter))
    return str(caught.value)


@pytest.mark.parametrize("scale", [1.0, 0.5, -1.0])
def test_an_adapter_is_added_to_the_weights(scale: float, llama: Path, tmp_path: Path) -> None:
    path, deltas = tiny.write_lora(tmp_path / "lora.gguf")
    scaled = {name: (scale * delta).astype(np.float32) for name, delta in deltas.items()}
    merged = tiny.write_llama(tmp_path / "merged.gguf", deltas=scaled)
    found = logits(llama, Adapter(path, scale))
    assert found == pytest.approx(logits(merged), abs=2e-3)
    assert found != pytest.approx(logits(llama), abs=1e-1)


def test_of_scale_zero_nothing_is_left(llama: Path, adapter: Path) -> None:
    assert logits(llama, Adapter(adapter, 0.0)) == logits(llama)


def test_several_adapters_add_up(llama: Path, adapter: Path) -> None:
    twice = logits(llama, Adapter(adapter, 0.75), Adapter(adapter, 0.25))
    assert twice == pytest.approx(logits(llama, Adapter(adapter, 1.0)), abs=2e-3)


def test_what_is_no_adapter_for_the_model_is_named(llama: Path, tmp_path: Path) -> None:
    there = tmp_path / "lora.gguf"
    assert refused(llama, there) == f"There is no LoRA adapter {there}."
    assert refused(llama, llama) == f"{llama} is not a LoRA adapter, but a model."
    there.write_bytes(b"text")
    assert refused(llama, there) == f"{there} is not a GGUF model."
    tiny.write_lora(there, architecture="qwen2")
    assert refused(llama, there).endswith("is for another kind of model (qwen2, not llama).")
    tiny.write_lora(there, width=tiny.WIDTH * 2)
    assert re.match(
        rf"The LoRA adapter {there} does not fit the model: tensor '.*' has incorrect shape",
        refused(llama, there),
    )
    tiny.write_lora(there, adapter_type="other")
    assert refused(llama, there) == f"{there} is an adapter of another kind (other) than LoRA."


@pytest.mark.parametrize(
    ("text", "path", "scale"),
    [
        ("a.gguf", "/models/a.gguf", 1.0),
        ("a.gguf:0.5", "/models/a.gguf", 0.5),
        ("/x/a:b.gguf", "/x/a:b.gguf", 1.0),
        ("/x/a:b.gguf:-2", "/x/a:b.gguf", -2.0),
    ],
)
def test_settings_name_paths_and_scales(text: str, path: str, scale: float) -> None:
    wanted = configured_adapters(settings(models_dir="/models", lora=[text]))
    assert wanted == (Adapter(Path(path), scale),)


@pytest.mark.parametrize("text", ["", ":0.5", "a.gguf:nan", "a.gguf:inf"])
def test_a_scale_alone_or_no_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="PATH or PATH:SCALE"):
        configured_adapters(settings(lora=[text]))


def test_an_identity_changes_with_the_file_and_the_scale(tmp_path: Path) -> None:
    path = tiny.write_lora(tmp_path / "lora.gguf")[0]
    first = Adapter(path).identity
    assert Adapter(path).identity == first != Adapter(path, 0.5).identity
    tiny.write_lora(path, rank=8)
    assert Adapter(path).identity != first


async def test_a_backend_answers_with_its_adapters(llama: Path, adapter: Path) -> None:
    async def answer(*lora: str) -> str:
        async with loaded(llama, lora=list(lora)) as backend:
            recorder = Recorder()
            await backend.generate_from_session(conversation("hello"), recorder, 24)
            return recorder.text

    plain = await answer()
    assert await answer(f"{adapter}:0") == plain
    assert await answer(str(adapter)) != plain


async def test_a_backend_without_its_adapter_is_not_loaded(llama: Path) -> None:
    with pytest.raises(ModelLoadError, match="There is no LoRA adapter"):
        async with loaded(llama, lora=["/nowhere/lora.gguf"]):
            pass


@pytest.mark.skipif(not STATM.exists(), reason="only Linux tells how much memory is used")
def test_memory_is_given_back(llama: Path, tmp_path: Path) -> None:
    path = tiny.write_lora(tmp_path / "lora.gguf", rank=4096)[0]
    size = path.stat().st_size
    logits(llama, Adapter(path))
    before = resident_bytes()
    for _ in range(10):
        logits(llama, Adapter(path))
    assert resident_bytes() - before < 4 * size

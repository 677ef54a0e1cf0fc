"""Copies of models whose type of weights is slow on a CPU."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shepherd.backends.base import Concurrency
from shepherd.backends.llamacpp import converted
from shepherd.backends.llamacpp.converted import faster_copy
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.messages import Message
from tests.backends.llamacpp.support import (
    EXACT,
    PUP,
    ask,
    conversation,
    generate,
    loaded,
    settings,
)

Q4_1, F32, BF16, F16 = 3, 0, 30, 1
PROMPT = list(range(300, 400))


@pytest.fixture(autouse=True)
def _on_a_cpu() -> None:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    if bindings().llama_supports_gpu_offload():
        pytest.skip("a GPU reads all types well")


def rewritten(target: Path, file_type: int) -> Path:
    """Pup with weights of another type."""
    params = bindings().llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.pure = file_type, True, True
    assert bindings().llama_model_quantize(str(PUP).encode(), str(target).encode(), params) == 0
    return target


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    return rewritten(tmp_path / "slow.gguf", Q4_1)


def copy_of(model: Path, folder: Path, *, workers: bool = False, **values: object) -> Path:
    own = settings(**values)
    return faster_copy(model, check_model_file(model), own, folder, workers=workers)


def probabilities(path: Path) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """The log probabilities of the token after PROMPT."""
    own = settings(**EXACT)
    model = NativeModel(path, model_params(own, os.environ))
    context = NativeContext(model, context_params(own, 1, model.traits))
    context.decode([Span(0, 0, PROMPT, True)])
    size = model.vocab.size
    row = np.ctypeslib.as_array(bindings().llama_get_logits_ith(context.handle, -1), (size,))
    logits = row.astype(np.float64)
    context.close()
    model.close()
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def test_a_copy_has_weights_of_16_bits_and_is_made_once(slow: Path, tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    copy = copy_of(slow, folder)
    types = check_model_file(copy).types
    layers = {kind for name, kind in types.items() if "blk." in name and "norm" not in name}
    assert layers in ({BF16}, {F16})
    assert types["token_embd.weight"] == check_model_file(slow).types["token_embd.weight"]
    made = copy.stat().st_ino
    assert copy_of(slow, folder) == copy
    assert copy.stat().st_ino == made
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_copy_computes_nearer_to_the_exact_weights(slow: Path, tmp_path: Path) -> None:
    def divergence(path: Path) -> float:
        return float((np.exp(exact) * (exact - probabilities(path))).sum())

    params = bindings().llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.pure = F32, True, True
    full = tmp_path / "full.gguf"
    assert bindings().llama_model_quantize(str(slow).encode(), str(full).encode(), params) == 0
    exact = probabilities(full)
    assert divergence(copy_of(slow, tmp_path / "weights")) < divergence(slow)


async def test_a_model_answers_from_its_copy_under_its_own_name(slow: Path) -> None:
    size = slow.stat().st_size  # noqa: ASYNC240 - a small file
    async with loaded(slow) as backend:
        engine = backend._worker.loaded.result()  # pyright: ignore[reportPrivateUsage] - what it owns
        assert engine.model.name == "slow.gguf"
        assert engine.model.bytes > size
        assert await ask(backend, conversation(), "Hello")


async def test_a_copy_can_be_loaded_again_while_it_is_in_use(slow: Path) -> None:
    async with loaded(slow) as first:
        before = await ask(first, conversation(), "Hello")
        async with loaded(slow) as second:
            assert await ask(second, conversation(), "Hello") == before
        assert await ask(first, conversation(), "Hello") == before


async def test_conversations_of_a_copy_stay_warm_over_a_restart(slow: Path, tmp_path: Path) -> None:
    session = conversation()
    async with loaded(slow, cache=tmp_path / "cache") as backend:
        await ask(backend, session, "Hello " * 300)
    async with loaded(slow, cache=tmp_path / "cache") as backend:
        session.add(Message.user("Go on."))
        answer = await generate(backend, session)
        assert answer.stats.cached_tokens > 0


@pytest.mark.parametrize(
    "values",
    [{"faster_weights": "off"}, {"deterministic": True}, {"threads": 5}],
    ids=["off", "deterministic", "many threads"],
)
def test_settings_can_keep_a_model_as_it_is(
    slow: Path, tmp_path: Path, values: dict[str, Any]
) -> None:
    assert copy_of(slow, tmp_path / "weights", **values) == slow
    assert not (tmp_path / "weights").exists()


def test_on_makes_a_copy_for_many_threads(slow: Path, tmp_path: Path) -> None:
    assert copy_of(slow, tmp_path / "weights", threads=5, faster_weights="on") != slow


def test_no_copy_is_made_of_fast_weights_or_for_workers(slow: Path, tmp_path: Path) -> None:
    assert copy_of(PUP, tmp_path / "weights") == PUP
    assert copy_of(slow, tmp_path / "weights", workers=True) == slow


def test_a_changed_model_gets_a_new_copy_and_the_old_one_goes(slow: Path, tmp_path: Path) -> None:
    first = copy_of(slow, tmp_path / "weights")
    os.utime(slow, (1, 1))
    second = copy_of(slow, tmp_path / "weights")
    assert second != first
    assert [*(tmp_path / "weights").iterdir()] == [second]


def test_a_copy_that_is_cut_off_is_made_again(slow: Path, tmp_path: Path) -> None:
    copy = copy_of(slow, tmp_path / "weights")
    size = copy.stat().st_size
    os.truncate(copy, size // 2)
    assert copy_of(slow, tmp_path / "weights") == copy
    assert copy.stat().st_size == size


def test_a_model_without_room_for_a_copy_is_used_itself(
    slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(total=10**9, used=10**9, free=1000)

    def usage(path: Path) -> SimpleNamespace:
        return full

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert copy_of(slow, tmp_path / "weights") == slow
    assert [*(tmp_path / "weights").iterdir()] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_does_not_matter(slow: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert copy_of(slow, tmp_path / "weights") == slow


def test_a_file_in_the_place_of_the_folder_does_not_matter(slow: Path, tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("")
    assert copy_of(slow, tmp_path / "weights") == slow


def test_a_failed_conversion_leaves_nothing(
    slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: bytes, target: bytes, params: Any) -> int:
        Path(target.decode()).write_text("a part")
        return 1

    monkeypatch.setattr(bindings(), "llama_model_quantize", fail)
    assert copy_of(slow, tmp_path / "weights") == slow
    assert [*(tmp_path / "weights").iterdir()] == []


def test_the_least_recently_used_copies_go_first(
    slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [Path(shutil.copy(slow, tmp_path / f"{number}.gguf")) for number in range(3)]
    size = copy_of(models[0], tmp_path / "weights").stat().st_size
    monkeypatch.setattr(converted, "MAX_FOLDER_BYTES", int(2.5 * size))
    second = copy_of(models[1], tmp_path / "weights")
    os.utime(second, (1, second.stat().st_mtime))
    abandoned = tmp_path / "weights" / f"x{converted.UNFINISHED}"
    abandoned.write_text("")
    os.utime(abandoned, (1, 1))
    third = copy_of(models[2], tmp_path / "weights")
    kept = copy_of(models[0], tmp_path / "weights")
    assert {*(tmp_path / "weights").iterdir()} == {kept, third}


def test_an_engine_falls_back_to_the_model_if_its_copy_cannot_be_loaded(
    slow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = NativeModel.__init__

    def broken(self: NativeModel, path: Path, *rest: Any, **more: Any) -> None:
        load(self, Path("missing.gguf") if path != slow else path, *rest, **more)

    monkeypatch.setattr(NativeModel, "__init__", broken)
    engine = Engine.load(slow, settings(), Concurrency(1), lambda job, update: None)
    assert engine.model.bytes < slow.stat().st_size
    engine.close()

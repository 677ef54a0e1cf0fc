"""GGUF files where programs keep them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from shepherd.catalog.model_files import DEEPEST, MOST_EFFORT, ModelFile, model_files
from tests.backends.ggufs import gguf


def found(home: Path, env: Mapping[str, str] | None = None, models: str = "ours") -> set[Path]:
    listed = list(model_files({"HOME": str(home), **(env or {})}, home / models))
    paths = [file.path for file in listed]
    assert len(paths) == len(set(paths))
    return set(paths)


@pytest.mark.parametrize(
    ("place", "env"),
    [
        ("ours/a.gguf", {}),
        ("models/maker/a.gguf", {}),
        (".cache/llama.cpp/maker_a.gguf", {}),
        ("Library/Caches/llama.cpp/a.gguf", {}),
        ("far/a.gguf", {"LLAMA_CACHE": "HOME/far"}),
        ("far/llama.cpp/a.gguf", {"XDG_CACHE_HOME": "HOME/far"}),
        (".cache/huggingface/hub/models--m--a/snapshots/1/Q4/a.gguf", {}),
        ("far/hub/models--m--a/snapshots/1/a.gguf", {"HF_HOME": "~/far"}),
        ("far/models--m--a/snapshots/1/a.gguf", {"HF_HUB_CACHE": "HOME/far", "HF_HOME": "/none"}),
        ("far/models--m--a/snapshots/1/a.gguf", {"HUGGINGFACE_HUB_CACHE": "HOME/far"}),
        (".lmstudio/models/maker/name/a.gguf", {}),
        (".cache/lm-studio/models/maker/name/a.gguf", {}),
    ],
)
def test_the_usual_places(tmp_path: Path, place: str, env: dict[str, str]) -> None:
    path = gguf(tmp_path / place)
    variables = {name: text.replace("HOME", str(tmp_path)) for name, text in env.items()}
    assert found(tmp_path, variables) == {path}
    if any("far" in text for text in env.values()):
        assert found(tmp_path) == set()


def test_only_models_count(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    wanted = {
        gguf(ours / "best-of-both.gguf"),
        gguf(ours / "UPPER.GGUF"),
        gguf(ours / "x" / "vocabulary-model.gguf"),
    }
    for name in ("mmproj-a", "maker_a_mmproj-F16", "ggml-vocab-a", "a.imatrix"):
        gguf(ours / f"{name}.gguf")
    gguf(ours / "tiny.gguf", 100)
    gguf(ours / "loading.gguf.part")
    gguf(ours / ".trash" / "gone.gguf")
    (ours / "directory.gguf").mkdir()
    (ours / "nowhere.gguf").symlink_to(ours / "missing")
    assert found(tmp_path) == wanted


def test_parts_are_one_model_when_all_are_there(tmp_path: Path) -> None:
    first = gguf(tmp_path / "ours/big-00001-of-00003.gguf", 10)
    gguf(tmp_path / "ours/big-00002-of-00003.gguf", 2_000_000)
    gguf(tmp_path / "ours/half-00001-of-00002.gguf")
    assert found(tmp_path) == set()
    gguf(tmp_path / "ours/big-00003-of-00003.gguf", 1_000_000)
    listed = list(model_files({"HOME": str(tmp_path)}, tmp_path / "ours"))
    assert listed == [ModelFile(first, 3_000_010)]


def test_a_file_with_several_names_is_shown_once(tmp_path: Path) -> None:
    hub = tmp_path / ".cache/huggingface/hub"
    blob = gguf(hub / "models--m--a/blobs/abc")
    for version in ("1", "2"):
        snapshot = hub / "models--m--a/snapshots" / version
        snapshot.mkdir(parents=True)
        (snapshot / "a.gguf").symlink_to(blob)
    (tmp_path / "models").symlink_to(hub)
    (hub / "loop").symlink_to(hub)
    assert len(found(tmp_path, models="models")) == 1


def test_large_trees_are_not_searched_to_their_end(tmp_path: Path) -> None:
    near = gguf(tmp_path / "models/near.gguf")
    gguf(tmp_path / "models" / "/".join("d" * (DEEPEST + 1)) / "deep.gguf")
    for number in range(MOST_EFFORT // 10):
        (tmp_path / "models" / f"{number:05}").mkdir()
    gguf(tmp_path / "models/zzz/far.gguf")
    assert found(tmp_path) == {near}
    assert found(tmp_path, {"HF_HUB_CACHE": str(tmp_path / "models" / "zzz")}) == {
        near,
        tmp_path / "models/zzz/far.gguf",
    }

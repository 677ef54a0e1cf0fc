"""GGUF files where programs keep them."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from shepherd.catalog.hub_files import HubFile, choose_files, parse_selection
from shepherd.catalog.model_files import (
    MAX_DEPTH,
    MAX_EFFORT,
    ModelFile,
    locate_model,
    model_files,
    models_in,
    parts_of,
)
from shepherd.cli.repl.commands.model import local_models
from shepherd.errors import ModelLoadError
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
    gguf(tmp_path / "models" / "/".join("d" * (MAX_DEPTH + 1)) / "deep.gguf")
    for number in range(MAX_EFFORT // 10):
        (tmp_path / "models" / f"{number:05}").mkdir()
    gguf(tmp_path / "models/zzz/far.gguf")
    assert found(tmp_path) == {near}
    assert found(tmp_path, {"HF_HUB_CACHE": str(tmp_path / "models" / "zzz")}) == {
        near,
        tmp_path / "models/zzz/far.gguf",
    }


def test_every_reader_of_the_models_directory_agrees(tmp_path: Path) -> None:
    directory = tmp_path / "ours"
    for name in (
        "one.gguf",
        "UPPER.GGUF",
        "sub/two.gguf",
        "big-00001-of-00003.gguf",
        "big-00002-of-00003.gguf",
        "big-00003-of-00003.gguf",
        "half-00002-of-00002.gguf",
        "mmproj-one.gguf",
        "sub/two-mmproj-F16.gguf",
        "sub/one.imatrix.gguf",
        ".hidden/three.gguf",
        "a/b/four.gguf",
    ):
        gguf(directory / name)
    (directory / "folder.gguf").mkdir()
    names = ["UPPER.GGUF", "big-00001-of-00003.gguf", "one.gguf", "sub/two.gguf"]
    paths = [directory / name for name in names]
    assert [model.path for model in models_in(directory)] == paths
    assert local_models(directory) == names
    assert found(tmp_path) == {*paths, directory / "a/b/four.gguf"}
    sizes = {model.path.name: model.size for model in models_in(directory)}
    assert sizes["big-00001-of-00003.gguf"] == 6_000_000
    files = [HubFile(str(p.relative_to(directory))) for p in directory.rglob("*") if p.is_file()]
    chosen = choose_files(files, parse_selection("me/models/big.gguf"))
    assert [file.name for file in chosen] == [f"big-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert parts_of(paths[1]) == [directory / file.name for file in chosen]
    with pytest.raises(ModelLoadError, match="several models") as raised:
        choose_files(files, parse_selection("me/models"))
    assert "mmproj" not in str(raised.value)


def test_a_directory_that_is_not_there_has_no_models(tmp_path: Path) -> None:
    assert models_in(tmp_path / "none") == []
    assert local_models(tmp_path / "none") == []


def ollama(store: Path, place: str, media: str = "model") -> Path:
    """A model in the store of Ollama, whose manifest is at `place`; returns its blob."""
    digest = f"sha256-{place.replace('/', '')}"
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:0"},
        {"mediaType": f"application/vnd.ollama.image.{media}", "digest": digest.replace("-", ":")},
    ]
    manifest = store / "manifests" / place
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return gguf(store / "blobs" / digest)


def test_the_store_of_ollama(tmp_path: Path) -> None:
    store = tmp_path / ".ollama" / "models"
    blobs = {
        "qwen3:4b": ollama(store, "registry.ollama.ai/library/qwen3/4b"),
        "me/own:latest": ollama(store, "registry.ollama.ai/me/own/latest"),
        "hf.co/unsloth/x-GGUF:Q4_K_M": ollama(store, "hf.co/unsloth/x-GGUF/Q4_K_M"),
    }
    ollama(store, "registry.ollama.ai/library/adapter/1", media="adapter")
    ollama(store, "registry.ollama.ai/library/gone/1").unlink()
    (store / "manifests/registry.ollama.ai/library/qwen3/broken").write_text("{")
    named = {file.called: file.path for file in model_files({"HOME": str(tmp_path)}, tmp_path)}
    assert named == blobs
    elsewhere = {"HOME": "/none", "OLLAMA_MODELS": str(store)}
    assert {file.path for file in model_files(elsewhere, tmp_path / "ours")} == {*blobs.values()}


def test_a_name_of_another_program_means_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    store = tmp_path / ".ollama" / "models"
    blob = ollama(store, "registry.ollama.ai/library/qwen3/4b")
    ollama(store, "registry.ollama.ai/library/qwen3/4b-q8_0")
    studio = gguf(tmp_path / ".lmstudio/models/maker/name/Granite-Q4_K_M.gguf")
    models = tmp_path / "ours"
    assert locate_model("qwen3:4b", models) == blob
    assert locate_model("granite", models) == studio
    with pytest.raises(ModelLoadError, match="could be any of: qwen3:4b, qwen3:4b-q8_0"):
        locate_model("qwen3", models)
    own = gguf(models / "qwen3:4b-mine.gguf")
    assert locate_model("qwen3:4b", models) == own

from pathlib import Path

import pytest

from shepherd.backends.llamacpp import locate_model
from shepherd.errors import ModelLoadError


@pytest.fixture
def models(tmp_path: Path) -> Path:
    directory = tmp_path / "models"
    (directory / "sub").mkdir(parents=True)
    names = ["Qwen3-4B-Q4.gguf", "gemma-2b.gguf", "gemma-9b.gguf", "sub/deep.gguf"]
    names += ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    for name in names:
        (directory / name).touch()
    return directory


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Qwen3-4B-Q4.gguf", "Qwen3-4B-Q4.gguf"),
        ("Qwen3-4B-Q4", "Qwen3-4B-Q4.gguf"),
        ("qwen3", "Qwen3-4B-Q4.gguf"),
        ("gemma-2", "gemma-2b.gguf"),
        ("sub/deep", "sub/deep.gguf"),
        ("sub", "sub/deep.gguf"),
        ("deep", "sub/deep.gguf"),
        ("big", "big-00001-of-00002.gguf"),
    ],
)
def test_a_model_is_found_by_name(models: Path, tmp_path: Path, name: str, file: str) -> None:
    assert locate_model(name, models, tmp_path) == models / file


def test_a_path_is_taken_as_it_is(models: Path, tmp_path: Path) -> None:
    absolute = models / "gemma-2b.gguf"
    assert locate_model(str(absolute), tmp_path / "elsewhere", tmp_path) == absolute
    assert locate_model("models/gemma-2b.gguf", tmp_path / "elsewhere", tmp_path) == absolute


def test_the_working_directory_comes_first(models: Path, tmp_path: Path) -> None:
    (tmp_path / "gemma-2b.gguf").touch()
    assert locate_model("gemma-2b", models, tmp_path) == tmp_path / "gemma-2b.gguf"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", "No model 'nothing'.*Qwen3-4B-Q4.gguf"),
        ("gemma", "'gemma' could be any of: gemma-2b.gguf, gemma-9b.gguf"),
        (".", "is a directory; name one model in it"),
    ],
)
def test_what_is_not_one_model_is_told(
    models: Path, tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        locate_model(name, models, models if name == "." else tmp_path)


def test_a_missing_models_directory_is_no_other_error(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no models there yet"):
        locate_model("x", tmp_path / "none", tmp_path)


def test_a_link_into_a_cache_keeps_its_name(models: Path, tmp_path: Path) -> None:
    """Parts and projectors are beside the link; its target is named by a hash."""
    blob = tmp_path / "blobs" / "0a1b2c"
    blob.parent.mkdir()
    blob.touch()
    link = models / "linked-Q4_0.gguf"
    link.symlink_to(blob)
    assert locate_model("linked", models, tmp_path) == link
    assert locate_model(str(link), models, tmp_path) == link
    same = models / "again.gguf"
    same.symlink_to(models / "gemma-2b.gguf")
    assert locate_model("again", models, tmp_path) == models / "gemma-2b.gguf"

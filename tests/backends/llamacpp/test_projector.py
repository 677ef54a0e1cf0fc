"""Which projector belongs to a model, and what is said where none can be used."""

from pathlib import Path

import pytest

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.vision import projector
from shepherd.backends.llamacpp.vision.projector import (
    ProjectorChoice,
    choose_projector,
    projectors_beside,
)
from shepherd.catalog.hub_files import HubFile, choose_files, parse_selection
from shepherd.errors import ModelLoadError
from tests.backends.llamacpp import projectors, tiny
from tests.backends.llamacpp.support import settings

GEMMA = "gemma-3-4b-it-Q4_K_M.gguf"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_llama(tmp_path_factory.mktemp("model") / "model.gguf")


def beside(folder: Path, *names: str) -> list[str]:
    """The projectors that fit the first of these files."""
    for name in names:
        (folder / name).touch()
    return [path.name for path in projectors_beside(folder / names[0])]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([GEMMA], []),
        ([GEMMA, "mmproj-gemma-3-4b-it-f16.gguf"], ["mmproj-gemma-3-4b-it-f16.gguf"]),
        ([GEMMA, "gemma-3-4b-it-mmproj-BF16.gguf"], ["gemma-3-4b-it-mmproj-BF16.gguf"]),
        ([GEMMA, "mmproj-anything.gguf"], ["mmproj-anything.gguf"]),
        ([GEMMA, "qwen2-vl-Q4_0.gguf", "mmproj-qwen2-vl-f16.gguf"], []),
        ([GEMMA, "other.gguf", "mmproj-model-f16.gguf"], ["mmproj-model-f16.gguf"]),
        (
            [GEMMA, "qwen2-vl.gguf", "mmproj-qwen2-vl.gguf", "mmproj-gemma-3-4b-it.gguf"],
            ["mmproj-gemma-3-4b-it.gguf"],
        ),
        (
            [GEMMA, "gemma-3-4b-it-Q8_0.gguf", "mmproj-gemma-3.gguf", "mmproj-gemma-3-4b.gguf"],
            ["mmproj-gemma-3-4b.gguf"],
        ),
        (
            [GEMMA, "mmproj-Q8_0.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"],
            ["mmproj-F16.gguf", "mmproj-BF16.gguf", "mmproj-Q8_0.gguf"],
        ),
    ],
)
def test_the_projector_beside_a_model_is_found_by_name(
    tmp_path: Path, names: list[str], chosen: list[str]
) -> None:
    assert beside(tmp_path, *names) == chosen


def test_a_choice_between_strangers_is_left_to_the_user(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"none has its name: mmproj-x.gguf, mmproj-y.gguf"):
        beside(tmp_path, GEMMA, "mmproj-x.gguf", "mmproj-y.gguf")


@pytest.fixture(autouse=True)
def build_reads_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this build of llama.cpp does."""
    monkeypatch.setattr(projector, "reads_images", lambda: True)


def choose(model: Path, **values: object) -> ProjectorChoice:
    return choose_projector(model, check_model_file(model), settings(**values))


def test_a_fitting_projector_is_chosen_and_can_be_switched_off(model: Path) -> None:
    file = projectors.write_gemma_projector(model.with_name("mmproj-f16.gguf"))
    try:
        choice = choose(model)
        assert choice.projector is not None
        assert choice.text == "yes, with mmproj-f16.gguf"
        assert choice.bytes == file.stat().st_size
        assert choose(model, projector="none") == ProjectorChoice()
        by_name = choose(model, projector="mmproj-f16", models_dir=str(model.parent))
        assert by_name.projector == choice.projector
    finally:
        file.unlink()


@pytest.mark.parametrize("kind", ["width", "damaged", "model", "build"])
def test_a_projector_that_can_not_be_used_costs_only_images(
    kind: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "model.gguf"
    own.write_bytes(model.read_bytes())
    file = tmp_path / "mmproj-model.gguf"
    width = 2 * tiny.WIDTH if kind == "width" else tiny.WIDTH
    projectors.write_gemma_projector(file, width=width)
    if kind == "damaged":
        file.write_bytes(file.read_bytes()[:5000])
    if kind == "model":
        file.write_bytes(model.read_bytes())
    reason = {
        "width": "is for another model: its embeddings have 128 numbers, those of the model 64",
        "damaged": "is cut off",
        "model": "is not a projector for images",
        "build": "which this build lacks",
    }[kind]
    monkeypatch.setattr(projector, "reads_images", lambda: kind != "build")
    choice = choose(own)
    assert choice.projector is None
    assert reason in choice.notice
    with pytest.raises(ModelLoadError, match=reason.replace("(", r"\(")):
        choose(own, projector=str(file))


def test_a_missing_projector_of_the_settings_is_an_error(model: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"llamacpp.projector: there is no file missing.gguf"):
        choose(model, projector="missing.gguf")


def test_the_bindings_load_without_the_library_for_images() -> None:
    assert bindings().llama_supports_mmap() in (True, False)


def test_a_projector_is_downloaded_only_by_its_name() -> None:
    files = [HubFile("gemma-Q4_K_M.gguf", 1), HubFile("mmproj-f16.gguf", 1)]
    assert [f.name for f in choose_files(files, parse_selection("a/b"))] == ["gemma-Q4_K_M.gguf"]
    named = parse_selection("a/b/mmproj-f16.gguf")
    assert [f.name for f in choose_files(files, named)] == ["mmproj-f16.gguf"]

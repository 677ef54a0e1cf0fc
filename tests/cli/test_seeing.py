"""Images for a model of this process, with the real program."""

from pathlib import Path

import pytest

from shepherd.backends.llamacpp.native.bindings import reads_images
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.server.pool.catalog import ModelFolder
from tests.backends.llamacpp import projectors, tiny
from tests.cli.program import Program
from tests.pictures import png

pytestmark = pytest.mark.skipif(
    not reads_images(), reason="llama.cpp was built without images; see docs/images.md"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    projectors.write_gemma_projector(folder / "mmproj-tiny-f16.gguf")
    return tiny.write_llama(folder / "tiny.gguf", context=1024)


def test_an_image_is_answered(program: Program, model: Path) -> None:
    (program.work / "photo.png").write_bytes(png(64, 48))
    options = ("--model", str(model), "--notools", "--max-tokens", "2")
    asked = program.run(*options, "-e", "What?", "--image", "photo.png")
    assert asked.returncode == 0, asked.stderr
    assert "can't see" not in asked.stderr
    (saved,) = program.sessions
    shown = program.run("sessions", "show", saved.stem)
    assert "> [image photo.png, 64×48]\nWhat?" in shown.stdout


def test_model_info_tells_whether_a_model_sees(program: Program, model: Path) -> None:
    seeing = program.run("model", "info", str(model))
    assert "images        yes, with mmproj-tiny-f16.gguf" in seeing.stdout
    projectors.write_gemma_projector(model.with_name("mmproj-tiny-f16.gguf"), width=32)
    other = program.run("model", "info", str(model))
    assert "can't see images" in other.stdout
    assert "is for another model" in other.stdout
    model.with_name("mmproj-tiny-f16.gguf").unlink()
    assert "images        no" in program.run("model", "info", str(model)).stdout


def test_a_server_lists_that_a_file_sees_before_it_is_loaded(model: Path) -> None:
    folder = ModelFolder(LlamaCppSection(models_dir=str(model.parent)))
    served = folder.look()
    assert served["tiny"].info.vision is True
    assert served["pup"].info.vision is False

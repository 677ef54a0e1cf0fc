from pathlib import Path

import pytest

from shepherd.backends.opening import open_backend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.sections import ModelSection
from shepherd.config.settings import Config
from shepherd.errors import ModelLoadError
from shepherd.models import BUILTIN_NAME, builtin_model


def config(name: str, models_dir: Path) -> Config:
    section = LlamaCppSection(models_dir=str(models_dir), threads=1)
    return Config(model=ModelSection(name=name), llamacpp=section)


async def test_the_built_in_model_needs_no_settings() -> None:
    backend = await open_backend(Config())
    assert backend.info.id == BUILTIN_NAME
    assert backend.alive
    await backend.aclose()
    assert not backend.alive


async def test_a_model_is_named_after_its_file(tmp_path: Path) -> None:
    (tmp_path / "My-Model.gguf").symlink_to(builtin_model())
    backend = await open_backend(config("my-mo", tmp_path))
    assert backend.info.backend == "llamacpp"
    await backend.aclose()


async def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="No model 'other'"):
        await open_backend(config("other", tmp_path))

from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.backends.inprocess.prompt import PromptBuilder
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import model_params
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.support import PUP, settings
from tests.backends.llamacpp.tiny_deepseek import write_deepseek4


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_llama(tmp_path_factory.mktemp("llama") / "tiny-llama.gguf")


@pytest.fixture(scope="session")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_gemma(tmp_path_factory.mktemp("gemma") / "tiny-gemma.gguf")


@pytest.fixture(scope="session")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_mamba(tmp_path_factory.mktemp("mamba") / "tiny-mamba.gguf")


@pytest.fixture(scope="session")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_llama(tmp_path_factory.mktemp("moe") / "tiny-moe.gguf", experts=4)


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_hybrid(tmp_path_factory.mktemp("hybrid") / "tiny-hybrid.gguf")


@pytest.fixture(scope="session")
def lfm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_lfm2(tmp_path_factory.mktemp("lfm2") / "tiny-lfm2.gguf")


@pytest.fixture(scope="session")
def qwen35(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_qwen35(tmp_path_factory.mktemp("qwen35") / "tiny-qwen35.gguf")


@pytest.fixture(scope="session")
def deepseek4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_deepseek4(tmp_path_factory.mktemp("deepseek4") / "tiny-deepseek4.gguf")


@pytest.fixture(scope="session")
def pup_model() -> Iterator[NativeModel]:
    model = NativeModel(PUP, model_params(settings(), {}))
    yield model
    model.close()


@pytest.fixture(scope="session")
def llama_model(llama: Path) -> Iterator[NativeModel]:
    model = NativeModel(llama, model_params(settings(), {}))
    yield model
    model.close()


@pytest.fixture(scope="session")
def pup_builder(pup_model: NativeModel) -> PromptBuilder:
    return PromptBuilder(pup_model)


@pytest.fixture(scope="session")
def llama_builder(llama_model: NativeModel) -> PromptBuilder:
    return PromptBuilder(llama_model)

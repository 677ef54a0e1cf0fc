"""Loading through the package, and why it can fail."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.backends.opening import open_provider
from shepherd.backends.tensorrt.engine import load_engine
from shepherd.backends.tensorrt.model_files import ModelFacts
from shepherd.config.paths import Paths
from shepherd.config.provider import Provider, make_provider
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.errors import (
    ConfigError,
    ModelLoadError,
)
from tests.backends.llamacpp.support import Recorder
from tests.backends.tensorrt.package import Tokenizer, installed
from tests.backends.tensorrt.support import (
    END,
    FAST,
    TEMPLATE,
    model,
    opened,
    record,
    session,
    text,
)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"gpus": 0}, "no NVIDIA GPU"),
        ({"refuses": RuntimeError("CUDA out of memory")}, "can't load .*CUDA out of memory"),
        ({"tokenizer": Tokenizer(TEMPLATE, None)}, "no fast tokenizer"),
        ({"tokenizer": Tokenizer(TEMPLATE, '{"model": {}}')}, "no vocabulary"),
    ],
)
async def test_why_it_can_not_be_loaded(
    tmp_path: Path, values: dict[str, object], told: str
) -> None:
    with installed(record(**values)), pytest.raises(ModelLoadError, match=told):
        await opened(model(tmp_path))


async def test_too_few_gpus_and_a_broken_package(tmp_path: Path) -> None:
    with (
        installed(record(gpus=1)),
        pytest.raises(ModelLoadError, match=r"needs 2 GPUs .* only 1 NVIDIA GPU;"),
    ):
        await opened(model(tmp_path), tensor_parallel=2)
    with installed(record()):
        sys.modules["tensorrt_llm.llmapi"] = None  # type: ignore[assignment]  # as if not there
        with pytest.raises(ModelLoadError, match="installed but can't be used"):
            await opened(model(tmp_path))


async def test_without_the_package_a_sentence_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"pip install tensorrt-llm.*trtllm-serve.*base-url"):
        await opened(model(tmp_path))
    with pytest.raises(ModelLoadError, match="pip install tensorrt-llm"):
        await opened(Path("owner/name"))  # before the hub is asked


async def test_models_that_are_none(tmp_path: Path) -> None:
    with installed(record()):
        with pytest.raises(ModelLoadError, match=r"no config\.json"):
            await opened(tmp_path)
        with pytest.raises(ModelLoadError, match="not a name on the hub"):
            await opened(tmp_path / "is" / "not" / "there")
        with pytest.raises(ConfigError, match="how large its context"):
            await opened(model(tmp_path, max_position_embeddings=None))
    book = ProviderBook(Paths.from_env({"HOME": str(tmp_path)}), {})
    with pytest.raises(ConfigError, match="needs a model"):
        await open_provider(make_provider("gpu", {"type": "tensorrt"}), book, Config())


PROVIDER = Provider(name="x", type="tensorrt", model="x")


def test_loading_prints_nothing_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with installed(record()):
        load_engine(PROVIDER, ModelFacts(100)).close()
    assert capsys.readouterr().out == ""


def test_a_template_is_not_needed() -> None:
    made = record(tokenizer=Tokenizer("", FAST, None))
    with installed(made):
        engine = load_engine(PROVIDER, ModelFacts(100, (END,)))
        assert engine.model.chat_template() == ""
        assert engine.model.vocab.ends == (END,)
        engine.close()


def test_nothing_is_imported_unless_it_is_chosen() -> None:
    code = (
        "import sys, shepherd.cli.app, shepherd.backends.opening;"
        "print([m for m in sys.modules if 'tensorrt' in m])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_engine_is_the_only_one_that_imports_the_package() -> None:
    import shepherd

    root = Path(shepherd.__file__).parent
    naming = {p.name for p in root.rglob("*.py") if '"tensorrt_llm' in p.read_text("utf-8")}
    assert naming == {"engine.py"}


def test_requests_run_side_by_side(tmp_path: Path) -> None:
    async def run() -> None:
        with installed(record((text("ab"), ""), ([END], "stop"))) as made:
            backend = await opened(model(tmp_path))
            asked = [backend.generate_from_session(session(), Recorder()) for _ in range(20)]
            results = await asyncio.gather(*asked)
            await backend.aclose()
        assert [r.message.content for r in results] == ["ab"] * 20
        assert len(made.requests) == 20

    asyncio.run(run())

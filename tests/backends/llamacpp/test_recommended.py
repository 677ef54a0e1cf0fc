"""What a model's file recommends for sampling counts where nobody says otherwise."""

from pathlib import Path

import gguf
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.sampling.native_chain import KEYS, recommended_sampling
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import Recorder, conversation
from tests.backends.llamacpp.tiny import write_llama
from tests.backends.llamacpp.vocabularies import bpe


def test_the_keys_are_those_of_the_format() -> None:
    known = {getattr(gguf.Keys.General, n) for n in dir(gguf.Keys.General) if "SAMPLING" in n}
    assert {f"general.sampling.{key}" for key in KEYS} | {"general.sampling.sequence"} == known


def test_what_can_not_be_is_ignored() -> None:
    header = {
        "general.sampling.temp": "0.600000",
        "general.sampling.top_k": "20",
        "general.sampling.top_p": "7",
        "general.sampling.min_p": "little",
        "general.sampling.penalty_repeat": "nan",
    }
    sampling = recommended_sampling(lambda key: header.get(key, ""))
    assert sampling == Sampling(temperature=0.6, top_k=20)


@pytest.mark.parametrize(
    ("settings", "asked", "same"),
    [
        (None, Sampling(), True),
        (Sampling(temperature=5.0), Sampling(), False),
        (None, Sampling(temperature=5.0), False),
    ],
)
async def test_settings_and_requests_go_before_the_file(
    tmp_path: Path, settings: Sampling | None, asked: Sampling, *, same: bool
) -> None:
    """The file asks for the likeliest token: then seeds make no difference."""
    add = bpe()

    def vocabulary(writer: gguf.GGUFWriter) -> int:
        writer.add_sampling_temp(0.0)
        return add(writer)

    path = write_llama(tmp_path / "model.gguf", vocabulary=vocabulary)
    section = LlamaCppSection(context_size=256, gpu_layers=0)
    backend = await LlamaCppBackend.load(path, section, settings)
    said: set[str] = set()
    for seed in range(4):
        session = conversation("Hello")
        session.sampling = Sampling(seed=seed).over(asked)
        generation = await backend.generate_from_session(session, Recorder(), 16)
        said.add(generation.message.content)
    await backend.aclose()
    assert (len(said) == 1) is same

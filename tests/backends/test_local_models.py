"""The table of open models: complete, consistent, and each fact with a source."""

import tomllib
from datetime import date
from importlib.resources import files
from itertools import chain
from typing import Any

import pytest

from shepherd.catalog.local_models import LocalModel, find_local_model, local_models

TABLE: dict[str, Any] = tomllib.loads(
    (files("shepherd.config") / "local_models.toml").read_text(encoding="utf-8")
)
MODELS = local_models()
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


def test_a_name_means_one_model() -> None:
    names = [
        name.lower() for model in MODELS for name in (model.name, *model.aliases, model.repository)
    ]
    assert len(names) == len(set(names))
    assert [find_local_model(name.upper()) for name in names] == list(
        chain.from_iterable([model] * (2 + len(model.aliases)) for model in MODELS)
    )
    assert find_local_model("no-such-model") is None


def test_the_smallest_is_first() -> None:
    assert [m.parameters for m in MODELS] == sorted(m.parameters for m in MODELS)
    assert MODELS[0].parameters >= 0.3
    assert MODELS[-1].parameters < 130


@each_model
def test_each_fact_has_a_source(model: LocalModel) -> None:
    assert model.licence_url.startswith("https://")
    assert any(source.startswith("https://huggingface.co/") for source in model.sources)
    for source in model.sources:
        assert source.startswith("https://") or source in TABLE["sources"]
    assert date(2024, 1, 1) < model.released < date(2026, 12, 1)


@each_model
def test_sizes_are_like_those_of_the_bits(model: LocalModel) -> None:
    """A published size may differ by mixed formats, by a vision part or by MTP layers."""
    for quant in model.quants:
        bits = model.size(quant) * 8 / (model.parameters * 1e9)
        expected = TABLE["bits"].get(quant.removeprefix("UD-"), bits)
        assert 0.8 * expected < bits < 1.25 * expected
        assert 2.3 < bits < 9
    sizes = [model.size(quant) for quant in model.quants]
    assert sizes == sorted(sizes)
    assert 0 <= model.active < model.parameters
    assert bool(model.active) == ("expert_count" in model.gguf)

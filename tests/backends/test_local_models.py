"""The table of open models: complete, consistent, and each fact with a source."""

import tomllib
from datetime import date
from importlib.resources import files
from itertools import chain
from typing import Any

import pytest

from shepherd.backends.llamacpp.native.picking import expected_header
from shepherd.backends.llamacpp.native.sizes import model_sizes
from shepherd.catalog.local_models import LocalModel, find_local_model, local_models
from shepherd.config.llamacpp import LlamaCppSection

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
        assert 0.8 * expected < bits < 1.3 * expected
        assert 2.3 < bits < 9
    sizes = [model.size(quant) for quant in model.quants]
    assert sizes == sorted(sizes)
    assert 0 <= model.active < model.parameters
    assert bool(model.active) == ("expert_count" in model.gguf)


@each_model
def test_a_header_has_the_weights_of_the_model(model: LocalModel) -> None:
    """Those of a token are about the active ones; some publishers don't count embeddings."""
    quant = next(iter(model.quants))
    header = expected_header(model, quant)
    assert min(header.weights.values()) >= 0
    assert sum(header.weights.values()) == pytest.approx(model.size(quant), rel=0.001)
    sizes = model_sizes(header, LlamaCppSection())
    each = model.size(quant) / model.parameters
    experts = sum(sizes.experts) * (1 - sizes.expert_share)
    rows = sizes.embedding * (1 if sizes.tied else 2)
    if model.active:
        used = (sizes.weights - experts) / each
        assert used - rows / each - 0.8 < model.active < used + 0.8

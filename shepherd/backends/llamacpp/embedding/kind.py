"""Which model files make vectors instead of text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shepherd.backends.base import ModelKind
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import ENCODERS
from shepherd.backends.llamacpp.native.pooled import Pooling


def kind_of(pooling: Pooling | None) -> ModelKind:
    """What a model makes that pools like this, None for not at all."""
    if pooling is None:
        return ModelKind.TEXT
    return ModelKind.RERANKING if pooling is Pooling.RANK else ModelKind.EMBEDDING


def pooling_of(path: Path) -> Pooling | None:
    """How the model at `path` pools, None for a model that writes text.

    Raises ModelLoadError for a damaged file.
    """
    return _pooling(check_model_file(path).values)


def _pooling(values: Mapping[str, Any]) -> Pooling | None:
    architecture: object = values.get("general.architecture")
    number: object = values.get(f"{architecture}.pooling_type")
    pooling = next((kind for kind in Pooling if kind == number), Pooling.NONE)
    if pooling is not Pooling.NONE:
        return pooling
    return Pooling.NONE if architecture in ENCODERS else None

"""The native objects of a model that makes vectors, created and freed together."""

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from shepherd.backends.llamacpp.embedding.pooling import USUAL_CONTEXT, PooledContext, Pooling
from shepherd.backends.llamacpp.embedding.texts import TextReader
from shepherd.backends.llamacpp.native.fitting import fit_model, load_fitted
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import NativeAdapters, NativeModel, configured_adapters
from shepherd.backends.llamacpp.native.params import model_params
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class PooledEngine:
    """A model, its context and its reader; the context belongs to one thread."""

    model: NativeModel
    context: PooledContext
    reader: TextReader

    @classmethod
    def load(cls, path: Path, settings: LlamaCppSection, pooling: Pooling) -> "PooledEngine":
        """Load a model file; raises ModelLoadError, or ConfigError for a bad variable."""
        size = settings.context_size or USUAL_CONTEXT
        settings = replace(settings, rpc_servers=[])  # small enough for one machine
        whole = {"context_size": size, "n_batch": size, "ubatch": size}  # a text is one batch
        fit = fit_model(check_model_file(path), replace(settings, **whole))
        return load_fitted(fit, lambda fit: cls._load(path, fit.applied(settings), pooling))[0]

    @classmethod
    def _load(cls, path: Path, settings: LlamaCppSection, pooling: Pooling) -> "PooledEngine":
        """As `load`, exactly with these settings."""
        adapters = configured_adapters(settings)
        with ExitStack() as resources:
            model = NativeModel(path, model_params(settings, os.environ))
            resources.callback(model.close)
            if not model.vocab.size:
                raise ModelLoadError(f"{path} has no vocabulary.")
            loaded = NativeAdapters(model, adapters)
            context = PooledContext(model, settings, pooling)
            resources.callback(context.close)
            loaded.apply(context.handle)
            engine = cls(model, context, TextReader(model, context.size))
            resources.pop_all()  # the engine frees them from here on
            return engine

    def close(self) -> None:
        """Free the context, then the model."""
        self.context.close()
        self.model.close()

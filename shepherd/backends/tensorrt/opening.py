"""A provider's model in this process."""

import asyncio
from functools import partial
from pathlib import Path

from shepherd.backends.tensorrt.backend import TensorRtBackend
from shepherd.backends.tensorrt.engine import check_machine, load_engine
from shepherd.backends.tensorrt.model_files import Fetch, ModelFacts, read_facts
from shepherd.backends.tensorrt.seam import EngineSettings
from shepherd.config.providers import Provider
from shepherd.config.settings import Config
from shepherd.errors import ConfigError


async def open_tensorrt(
    provider: Provider, config: Config, fetch: Fetch | None = None
) -> TensorRtBackend:
    """Load the provider's model; raises ConfigError, ModelLoadError."""
    settings = engine_settings(provider)
    await asyncio.to_thread(check_machine, settings)
    facts = await asyncio.to_thread(read_facts, settings.model, fetch)
    _check_context(provider, facts)
    name = Path(settings.model).name
    load = partial(load_engine, settings, facts)
    return await TensorRtBackend.open(name, load, config.sampling.to_sampling())


def engine_settings(provider: Provider) -> EngineSettings:
    """How the provider's model is loaded; raises ConfigError where there is none."""
    if not provider.model:
        raise ConfigError(
            f"{provider.name}: TensorRT-LLM in this process needs a model, a directory or a name "
            f"on the hub: `shepherd provider set {provider.name} model …`; or give the address of "
            "`trtllm-serve` as base-url."
        )
    folder = Path(provider.model).expanduser()
    return EngineSettings(
        model=str(folder) if folder.is_dir() else provider.model,
        tokenizer=provider.tokenizer,
        context_size=provider.context_size,
        tensor_parallel=provider.tensor_parallel,
        pipeline_parallel=provider.pipeline_parallel,
        gpu_memory=provider.gpu_memory,
        max_batch_size=provider.max_batch_size,
        guided_decoding=provider.guided_decoding,
        trust_remote_code=provider.trust_remote_code,
    )


def _check_context(provider: Provider, facts: ModelFacts) -> None:
    if not (provider.context_size or facts.context_size):
        raise ConfigError(
            f"{provider.name}: the model does not say how large its context is; set it with "
            f"`shepherd provider set {provider.name} context-size TOKENS`."
        )

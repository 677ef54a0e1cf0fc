"""The `[llamacpp]` section."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from shepherd.config.section import Section

CacheType = Literal["auto", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]

MIN_CONTEXT = 256
"""llama.cpp rounds contexts up to multiples of this many tokens."""

DEFAULT_UBATCH = 512


def _check_context(size: int) -> int:
    """The size; raises ValueError for one that llama.cpp would make larger."""
    if 0 < size < MIN_CONTEXT:
        raise ValueError(f"must be 0 or at least {MIN_CONTEXT}, got {size}")
    return size


class LlamaCppSection(Section):
    """How models are loaded and run in-process."""

    models_dir: str = "~/.local/share/shepherd/models"
    """Directory of models with a name or relative path; ~ is the home."""

    context_size: Annotated[int, AfterValidator(_check_context)] = Field(
        default=0, ge=0, le=16_777_216
    )
    """Context size in tokens; 0 = the model's own, or as much as fits."""

    gpu_layers: int = Field(default=-1, ge=-1, le=100_000)
    """Layers on the GPU; -1 = as many as fit. The environment variable `GGML_N_GPU_LAYERS`
    overrides it."""

    cpu_moe: int = Field(default=-1, ge=-1, le=100_000)
    """Layers, from the first, whose experts stay in the memory of the CPU; -1 = as many as are
    needed so that the rest and the cache fit the GPU, 0 = none."""

    pipeline_parallel: int = Field(
        default=1, ge=1, le=64, validation_alias=AliasChoices("pipeline_parallel", "pp")
    )
    """GPUs that share the layers (also `pp`)."""

    tensor_parallel: int = Field(
        default=1, ge=1, le=64, validation_alias=AliasChoices("tensor_parallel", "tp")
    )
    """GPUs that share each tensor (also `tp`)."""

    rpc_servers: list[str] = []
    """RPC workers (`HOST:PORT`) that share the model's layers."""

    rpc_timeout: float = Field(default=120.0, ge=1, le=86_400)
    """Seconds until a silent RPC worker is lost."""

    n_batch: int = Field(default=0, ge=0, le=65_536)
    """Tokens of a prompt submitted at once; 0 = 512 on a CPU, 2048 on a GPU."""

    ubatch: int = Field(
        default=0, ge=0, le=65_536, validation_alias=AliasChoices("ubatch", "n_ubatch")
    )
    """Tokens computed at once, at most n_batch (also `n_ubatch`); 0 = 512, or fewer if that is
    faster."""

    threads: int = Field(default=0, ge=0, le=1024)
    """CPU threads; 0 = one per available core."""

    parallel: int = Field(default=0, ge=0, le=256)
    """Parallel sequences; 0 = 4 in a server, 1 in a REPL and more when needed."""

    max_queue: int = Field(default=64, ge=0, le=100_000)
    """Requests that may wait for a sequence; more get 503."""

    speculation: Literal["auto", "lookup", "draft", "off"] = "auto"
    """Compute tokens ahead if that is faster: `lookup` predicts them from the conversation, `draft`
    uses the draft model, `auto` uses both."""

    jump_ahead: bool = True
    """Compute text that a schema or grammar leaves no choice for in one batch, instead of one token
    after the other."""

    deterministic: bool = False
    """Give the same answer to the same request alone, beside others, from the cache and after a
    restart. It is slower, and each parallel sequence takes the memory of a whole context. It
    overrides `flash_attention`, `swa_full` and `reuse_after_eviction`."""

    max_thinking_tokens: int = Field(default=0, ge=0, le=10_000_000)
    """The tokens that a model may reason, unless a request says otherwise; 0 = no limit."""

    projector: str = ""
    """File or name of the projector, with which a model sees images; "" = the one beside the model,
    "none" = no images."""

    draft_model: str = ""
    """A small model of the same family that predicts tokens, as in `model.name`; "" = none."""

    flash_attention: Literal["auto", "on", "off"] = "auto"
    """Flash attention; auto measures once on a CPU whether it is faster for the model."""

    lora: list[str] = []
    """LoRA adapters (GGUF) for the model: paths, relative to models_dir or absolute, with `:SCALE`
    at the end unless it is 1."""

    check_calls: bool = True
    """Enforce the tools' schemas while the model writes a call."""

    cache_type_k: CacheType = "auto"
    """Number format of the K cache; auto = f16, or q8_0 for both where f16 leaves less than 65,536
    tokens of context (on a CPU 16,384) or fewer layers on the GPU."""

    cache_type_v: CacheType = "auto"
    """Number format of the V cache, as `cache_type_k`."""

    cache_ram_mib: int = Field(default=-1, ge=-1, le=16_777_216)
    """MiB of memory for conversations without a sequence; -1 = an eighth of the free memory, at
    most 4096; 0 = none."""

    cache_disk_mib: int = Field(default=-1, ge=-1, le=16_777_216)
    """MiB on disk for conversations, so that they continue fast after a restart; -1 = a tenth of
    the free space, at most 8192; 0 = none."""

    swa_full: bool = True
    """Keep all tokens of layers with a sliding window, so that any prefix can be reused; false =
    keep only the window, which takes less memory."""

    reuse_after_eviction: bool = True
    """After messages leave a full context, move the later ones instead of computing them again;
    they keep traces of the evicted messages."""

    @property
    def largest_ubatch(self) -> int:
        """The tokens computed at once, unless fewer are faster."""
        return self.ubatch or DEFAULT_UBATCH

    @property
    def models_path(self) -> Path:
        """The directory `models_dir`."""
        return Path(self.models_dir).expanduser()

    @model_validator(mode="after")
    def _fits_batch(self) -> LlamaCppSection:
        """Refuse more tokens at once than are submitted; 0 is a default that fits."""
        if self.ubatch > self.n_batch > 0:
            raise ValueError(f"ubatch ({self.ubatch}) must not exceed n_batch ({self.n_batch})")
        return self

"""The `[llamacpp]` section."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from shepherd.config.section import Section

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]

MIN_CONTEXT = 256
"""llama.cpp rounds contexts up to multiples of this many tokens."""

DEFAULT_UBATCH = 512


def _check_context(size: int) -> int:
    if 0 < size < MIN_CONTEXT:
        raise ValueError(f"must be 0 or at least {MIN_CONTEXT}, got {size}")
    return size


class LlamaCppSection(Section):
    """How models are loaded and run in-process."""

    models_dir: Annotated[
        str, Field(description="Directory of models with a name or relative path; ~ is the home.")
    ] = "~/.local/share/shepherd/models"
    context_size: Annotated[
        int,
        Field(
            ge=0,
            le=16_777_216,
            description="Context size in tokens; 0 = the model's own, or as much as fits.",
        ),
        AfterValidator(_check_context),
    ] = 0
    gpu_layers: Annotated[
        int,
        Field(
            ge=-1,
            le=100_000,
            description="Layers on the GPU; -1 = as many as fit. The environment variable "
            "`GGML_N_GPU_LAYERS` overrides it.",
        ),
    ] = -1
    pipeline_parallel: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            validation_alias=AliasChoices("pipeline_parallel", "pp"),
            description="GPUs that share the layers (also `pp`).",
        ),
    ] = 1
    tensor_parallel: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            validation_alias=AliasChoices("tensor_parallel", "tp"),
            description="GPUs that share each tensor (also `tp`).",
        ),
    ] = 1
    rpc_servers: Annotated[
        list[str],
        Field(
            description="RPC workers (`HOST:PORT`) that share the model's layers.",
        ),
    ] = []
    rpc_timeout: Annotated[
        float, Field(ge=1, le=86_400, description="Seconds until a silent RPC worker is lost.")
    ] = 120.0
    n_batch: Annotated[
        int,
        Field(
            ge=0,
            le=65_536,
            description="Tokens of a prompt submitted at once; 0 = 512 on a CPU, 2048 on a GPU.",
        ),
    ] = 0
    ubatch: Annotated[
        int,
        Field(
            ge=0,
            le=65_536,
            validation_alias=AliasChoices("ubatch", "n_ubatch"),
            description="Tokens computed at once, at most n_batch (also `n_ubatch`); 0 = 512, or "
            "fewer if that is faster.",
        ),
    ] = 0
    threads: Annotated[
        int, Field(ge=0, le=1024, description="CPU threads; 0 = one per available core.")
    ] = 0
    parallel: Annotated[
        int,
        Field(
            ge=0,
            le=256,
            description="Parallel sequences; 0 = 4 in a server, 1 in a REPL and more when needed.",
        ),
    ] = 0
    max_queue: Annotated[
        int,
        Field(ge=0, le=100_000, description="Requests that may wait for a sequence; more get 503."),
    ] = 64
    speculation: Annotated[
        Literal["auto", "lookup", "draft", "off"],
        Field(
            description="Compute tokens ahead if that is faster: `lookup` predicts them from the "
            "conversation, `draft` uses the draft model, `auto` uses both."
        ),
    ] = "auto"
    jump_ahead: Annotated[
        bool,
        Field(
            description="Compute text that a schema or grammar leaves no choice for in one batch, "
            "instead of one token after the other."
        ),
    ] = True
    deterministic: Annotated[
        bool,
        Field(
            description="Give the same answer to the same request alone, beside others, from the "
            "cache and after a restart. It is slower, and each parallel sequence takes the memory "
            "of a whole context. It overrides `flash_attention`, `swa_full` and "
            "`reuse_after_eviction`."
        ),
    ] = False
    max_thinking_tokens: Annotated[
        int,
        Field(
            ge=0,
            le=10_000_000,
            description="The tokens that a model may reason, unless a request says otherwise; "
            "0 = no limit.",
        ),
    ] = 0
    projector: Annotated[
        str,
        Field(
            description="File or name of the projector, with which a model sees images; "
            '"" = the one beside the model, "none" = no images.'
        ),
    ] = ""
    draft_model: Annotated[
        str,
        Field(
            description="A small model of the same family that predicts tokens, as in "
            '`model.name`; "" = none.'
        ),
    ] = ""
    flash_attention: Annotated[
        Literal["auto", "on", "off"], Field(description="Flash attention; auto avoids it on a CPU.")
    ] = "auto"
    lora: Annotated[
        list[str],
        Field(
            description="LoRA adapters (GGUF) for the model: paths, relative to models_dir or "
            "absolute, with `:SCALE` at the end unless it is 1.",
        ),
    ] = []
    check_calls: Annotated[
        bool, Field(description="Enforce the tools' schemas while the model writes a call.")
    ] = True
    cache_type_k: Annotated[CacheType, Field(description="Number format of the K cache.")] = "f16"
    cache_type_v: Annotated[CacheType, Field(description="Number format of the V cache.")] = "f16"
    cache_ram_mib: Annotated[
        int,
        Field(
            ge=-1,
            le=16_777_216,
            description="MiB of memory for conversations without a sequence; -1 = an eighth of "
            "the free memory, at most 4096; 0 = none.",
        ),
    ] = -1
    cache_disk_mib: Annotated[
        int,
        Field(
            ge=-1,
            le=16_777_216,
            description="MiB on disk for conversations, so that they continue fast after a "
            "restart; -1 = a tenth of the free space, at most 8192; 0 = none.",
        ),
    ] = -1
    swa_full: Annotated[
        bool,
        Field(
            description="Keep all tokens of layers with a sliding window, so that any prefix can "
            "be reused; false = keep only the window, which takes less memory."
        ),
    ] = True
    reuse_after_eviction: Annotated[
        bool,
        Field(
            description="After messages leave a full context, move the later ones instead of "
            "computing them again; they keep traces of the evicted messages."
        ),
    ] = True

    @property
    def largest_ubatch(self) -> int:
        """The tokens computed at once, unless fewer are faster."""
        return self.ubatch or DEFAULT_UBATCH

    @model_validator(mode="after")
    def _fits_batch(self) -> LlamaCppSection:
        if self.ubatch > self.n_batch > 0:
            raise ValueError(f"ubatch ({self.ubatch}) must not exceed n_batch ({self.n_batch})")
        return self

"""The settings: one pydantic model per TOML section, with the range of each value.

`[sampling]` is in `sampling.py`, `[server]` in `server.py`, and `[terminal]` in `terminal.py`.
"""

from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

from shepherd.config.choices import ApproveMode, SandboxMode

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]


class Section(BaseModel):
    """A section; it refuses unknown keys and values of another type.

    Its validator is built when a value is validated, which few runs do for most sections.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=True,
        allow_inf_nan=False,
        defer_build=True,
    )


MIN_CONTEXT = 256
"""llama.cpp rounds contexts up to multiples of this many tokens."""


class ModelSection(Section):
    """The model that answers, and its instructions."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            description="Built-in model (`pup`), a model in `llamacpp.models_dir` by name or "
            "relative path, or an absolute path to a GGUF file.",
        ),
    ] = "pup"
    provider: Annotated[
        str,
        Field(
            description="Provider that answers instead of the local model: `NAME`, or "
            '`NAME/MODEL` for another of its models; "" = none.'
        ),
    ] = ""
    fallback: Annotated[
        bool,
        Field(
            description="If the provider can't be reached, use the next one by priority, with a "
            "notice; it then receives the conversations."
        ),
    ] = False
    thinking: Annotated[bool, Field(description="Let the model reason before it answers.")] = False
    tools: Annotated[bool, Field(description="Offer the model the built-in tools.")] = True
    system_message: Annotated[
        str | None,
        Field(description='System message; unset = Shepherd\'s own, "" = none.'),
    ] = None
    max_tokens: Annotated[
        int, Field(ge=0, le=16_777_216, description="Maximum answer in tokens; 0 = as many as fit.")
    ] = 0
    max_rounds: Annotated[
        int, Field(ge=1, le=10_000, description="Maximum rounds of tool calls in one turn.")
    ] = 50
    max_hints: Annotated[
        int,
        Field(
            ge=0,
            le=10,
            description="Maximum hints per turn that tell the model why a call was not understood.",
        ),
    ] = 2

    @property
    def label(self) -> str:
        """The name of the answering model: the provider and its model, or the local model."""
        return self.provider or self.name


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
        list[str], Field(description="RPC workers (`HOST:PORT`) that share the model's layers.")
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
            ge=1,
            le=65_536,
            validation_alias=AliasChoices("ubatch", "n_ubatch"),
            description="Tokens computed at once, at most n_batch (also `n_ubatch`).",
        ),
    ] = 512
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
            "absolute, with `:SCALE` at the end unless it is 1."
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

    @field_validator("context_size")
    @classmethod
    def _context_is_usable(cls, size: int) -> int:
        if 0 < size < MIN_CONTEXT:
            raise ValueError(f"must be 0 or at least {MIN_CONTEXT}, got {size}")
        return size

    @model_validator(mode="after")
    def _ubatch_fits(self) -> "LlamaCppSection":
        if self.ubatch > self.n_batch > 0 and "ubatch" in self.model_fields_set:
            raise ValueError(f"ubatch ({self.ubatch}) must not exceed n_batch ({self.n_batch})")
        return self


class PermissionRule(Section):
    """One rule: calls of `tool` that touch what `pattern` matches get `decision`."""

    tool: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9_*?]+$",
            description="Tool, glob of tools, or read, write, shell, shell_network, unsandboxed, "
            "network, environment, mcp, tool.",
        ),
    ]
    pattern: Annotated[
        str,
        Field(
            min_length=1,
            description="Path, command, host, variable or `SERVER/TOOL`, with * and **.",
        ),
    ]
    decision: Annotated[
        Literal["allow", "ask", "deny"], Field(description="The decision on such a call.")
    ]
    scope: Annotated[
        str, Field(description='Directory in and below which the rule holds; "" = everywhere.')
    ] = ""


class PermissionsSection(Section):
    """The tool calls that need no approval."""

    approve: Annotated[
        ApproveMode,
        Field(
            strict=False,
            description="Calls that need approval: `ask` asks, `edits` approves changes to files "
            "in the working directory, `auto` also commands in the sandbox, `all` approves "
            "everything, `none` refuses. `plan` changes nothing.",
        ),
    ] = ApproveMode.ASK
    rules: Annotated[
        list[PermissionRule],
        Field(
            description="Rules after the built-in ones; the last match wins. A project's rules "
            "count only if they are stricter."
        ),
    ] = []


class ToolsSection(Section):
    """Limits of the built-in tools."""

    timeout: Annotated[
        float, Field(ge=1, le=86_400, description="Maximum seconds of one call.")
    ] = 120.0
    output_bytes: Annotated[
        int,
        Field(
            ge=1024,
            le=16_777_216,
            description="Maximum result in bytes; the rest goes to a file.",
        ),
    ] = 32_768
    allow_private_hosts: Annotated[
        bool, Field(description="Let the http tools reach loopback and private addresses.")
    ] = False
    sandbox: Annotated[
        SandboxMode,
        Field(
            strict=False,
            description="Commands run in the strongest sandbox that works here. If none works, "
            "`auto` runs them without one, and `required` refuses them; `off` uses none.",
        ),
    ] = SandboxMode.AUTO
    sandbox_writable: Annotated[
        list[str],
        Field(
            description="Paths outside the working directory that commands in the sandbox may "
            "also write, such as `~/.cache/pip`."
        ),
    ] = []
    sandbox_readable: Annotated[
        list[str], Field(description="Paths that commands in the sandbox may also read.")
    ] = []
    disabled: Annotated[list[str], Field(description="Names of tools that are not offered.")] = []
    schema_tokens: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000,
            description="Maximum tokens of added tools (MCP, plugins) in the prompt. If they take "
            "more, the model searches them with `find_tools`.",
        ),
    ] = 500
    ask_providers: Annotated[
        bool,
        Field(
            description="Offer the model `ask_NAME` for each other provider, unless that one's "
            "`ask` is false."
        ),
    ] = True
    tasks: Annotated[
        int,
        Field(
            ge=0,
            le=16,
            description="Sub-agents that work at the same time; 0 = the model has no `task` tool.",
        ),
    ] = 4

    @field_validator("sandbox_writable", "sandbox_readable")
    @classmethod
    def _paths_are_absolute(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.startswith(("/", "~/")):
                raise ValueError(f"must begin with / or ~/, got {path!r}")
            if not path.strip("/~"):
                raise ValueError(f"must not be the whole of {path!r}")
        return paths


class PluginsSection(Section):
    """The plugins of installed packages."""

    disabled: Annotated[
        list[str], Field(description="Packages, or entry points by name, that are not loaded.")
    ] = []

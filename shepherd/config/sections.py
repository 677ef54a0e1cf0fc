"""The settings themselves: one pydantic model per TOML section, with the range of each value."""

from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from shepherd.errors import InvalidRequestError
from shepherd.sampling import Sampling, check_sampling

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]


class Section(BaseModel):
    """A section refuses keys that it does not know and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class LlamaCppSection(Section):
    """How models are loaded and run in-process."""

    models_dir: Annotated[
        str, Field(description="Where models given by name or relative path are; ~ is the home.")
    ] = "~/.local/share/shepherd/models"
    context_size: Annotated[
        int, Field(ge=0, le=16_777_216, description="Tokens of context; 0 = the model's own.")
    ] = 0
    gpu_layers: Annotated[
        int,
        Field(ge=-1, le=100_000, description="Layers on the GPU; -1 = as many as there are."),
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
    n_batch: Annotated[
        int, Field(ge=1, le=65_536, description="Tokens of a prompt submitted at once.")
    ] = 512
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
        int, Field(ge=0, le=1024, description="CPU threads; 0 = one per core available.")
    ] = 0
    parallel: Annotated[
        int, Field(ge=0, le=256, description="Sequences at once; 0 = 1 in a REPL, 4 in a server.")
    ] = 0
    flash_attention: Annotated[
        Literal["auto", "on", "off"], Field(description="Flash attention.")
    ] = "auto"
    cache_type_k: Annotated[CacheType, Field(description="Number format of the K cache.")] = "f16"
    cache_type_v: Annotated[CacheType, Field(description="Number format of the V cache.")] = "f16"

    @model_validator(mode="after")
    def _ubatch_fits(self) -> "LlamaCppSection":
        if self.ubatch > self.n_batch and "ubatch" in self.model_fields_set:
            raise ValueError(f"ubatch ({self.ubatch}) must not exceed n_batch ({self.n_batch})")
        return self


class SamplingSection(Section):
    """How tokens are chosen when a request does not say; unset = the built-in default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    min_keep: int | None = None
    penalty_repeat: float | None = None
    penalty_freq: float | None = None
    penalty_present: float | None = None
    penalty_last_n: int | None = None
    seed: int | None = None
    stop: list[str] | None = None

    @model_validator(mode="after")
    def _in_range(self) -> "SamplingSection":
        try:
            check_sampling(self.to_sampling())
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def to_sampling(self) -> Sampling:
        """The section as plain data."""
        values = self.model_dump()
        stop: list[str] | None = values.pop("stop")
        return Sampling(**values, stop=None if stop is None else tuple(stop))

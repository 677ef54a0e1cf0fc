"""The protocol between the backend and the engine, which needs TensorRT-LLM."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shepherd.backends.inprocess.prompt.special import TemplateModel


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings for loading a model; with 0 and "" TensorRT-LLM decides.

    `gpu_memory` is the share of the free GPU memory that the KV cache takes.
    """

    model: str
    tokenizer: str = ""
    context_size: int = 0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    gpu_memory: float = 0.9
    max_batch_size: int = 0
    guided_decoding: str = ""
    trust_remote_code: bool = False

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return self.tensor_parallel * self.pipeline_parallel


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Tokens to continue.

    `parameters` are those of `SamplingParams` by its own names, `guide` those of
    `GuidedDecodingParams`.
    """

    tokens: Sequence[int]
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    guide: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The output of one step of the engine for a request.

    `finish` is "" until the last step: `stop`, `length`, `timeout` or `cancelled`. `cached` tokens
    of the prompt were in the KV cache. `logprobs` has, for each token, its own log probability and
    those of the likeliest tokens, by number; None if not requested.
    """

    tokens: tuple[int, ...] = ()
    finish: str = ""
    cached: int = 0
    logprobs: tuple[Mapping[int, float], ...] | None = None


class TokenStream(Protocol):
    """A running request of the engine."""

    def steps(self) -> AsyncGenerator[Step]:
        """The steps as the engine produces them. Raises BackendError."""
        ...

    def abort(self) -> None:
        """Stop the work; safe to call at any time."""
        ...


class TokenEngine(Protocol):
    """A loaded model that continues tokens, many requests at once."""

    @property
    def model(self) -> TemplateModel:
        """Its vocabulary and templates; used on one thread."""
        ...

    @property
    def context_size(self) -> int:
        """Tokens of a prompt and its answer together."""
        ...

    @property
    def unsupported(self) -> Mapping[str, str]:
        """Sampling parameters that it accepts and ignores, each with the reason."""
        ...

    @property
    def guides(self) -> bool:
        """Whether it can enforce a schema or a grammar."""
        ...

    @property
    def alive(self) -> bool:
        """Whether the engine still answers."""
        ...

    def submit(self, request: TokenRequest) -> TokenStream:
        """Start a request; on the event loop's thread. Raises BackendError."""
        ...

    def close(self) -> None:
        """Free the model; safe to call twice."""
        ...

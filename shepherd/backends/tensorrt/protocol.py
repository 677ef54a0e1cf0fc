"""The protocol between the backend and the engine, which needs TensorRT-LLM."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shepherd.backends.inprocess.prompt.vocabulary import TemplateModel


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a model is loaded; 0 and "" leave it to TensorRT-LLM.

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
    """Tokens to go on from.

    `parameters` are those of `SamplingParams` by its own names, `guide` those of
    `GuidedDecodingParams`.
    """

    tokens: Sequence[int]
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    guide: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of the engine gave a request.

    `finish` is "" until the last: `stop`, `length`, `timeout` or `cancelled`. `cached` tokens of
    the prompt were in the KV cache. `logprobs` has, for each of the tokens, log probabilities of
    the likeliest ones and of itself by number; None if nobody asked.
    """

    tokens: tuple[int, ...] = ()
    finish: str = ""
    cached: int = 0
    logprobs: tuple[Mapping[int, float], ...] | None = None


class TokenStream(Protocol):
    """A request that the engine works on."""

    def steps(self) -> AsyncGenerator[Step]:
        """What it gives, as it gives it. Raises BackendError."""
        ...

    def abort(self) -> None:
        """Stop the work; safe to call at any time."""
        ...


class TokenEngine(Protocol):
    """A loaded model that goes on from tokens, many requests at once."""

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
        """Sampling parameters that it takes and ignores, each with the reason."""
        ...

    @property
    def guides(self) -> bool:
        """Whether answers can be held to a schema or a grammar."""
        ...

    @property
    def alive(self) -> bool:
        """Whether the engine still answers."""
        ...

    def submit(self, request: TokenRequest) -> TokenStream:
        """Begin to work on a request; on the event loop's thread. Raises BackendError."""
        ...

    def close(self) -> None:
        """Free the model; safe to call twice."""
        ...

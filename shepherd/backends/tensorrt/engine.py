"""The engine that continues tokens: its interface, and TensorRT-LLM behind it.

Only this module imports TensorRT-LLM, and no test can run that part: it only passes values on.
tests/backends/tensorrt/signatures.py compares every call with the package's own signatures. It
names the sources: 1.2.0rc2, compared with the reference pages of 1.3.0rc24.
"""

import contextlib
import importlib
import importlib.util
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol, cast

from msgspec import Struct, field

from shepherd.backends.inprocess.special import TemplateModel
from shepherd.backends.tensorrt.model_files import HubVocabulary, ModelFacts
from shepherd.config.provider import Provider
from shepherd.errors import BackendError, ContextFullError, InvalidRequestError, ModelLoadError


class TokenRequest(Struct, frozen=True):
    """Tokens to continue.

    `parameters` are those of `SamplingParams` by its own names, `guide` those of
    `GuidedDecodingParams`.
    """

    tokens: Sequence[int]
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    guide: Mapping[str, Any] | None = None


class Step(Struct, frozen=True):
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


class TokenEngine(Protocol):
    """A loaded model that continues tokens, many requests at once."""

    context_size: int
    """Tokens of a prompt and its answer together."""
    unsupported: Mapping[str, str]
    """Sampling parameters that it accepts and ignores, each with the reason."""
    guides: bool
    """Whether it can enforce a schema or a grammar."""
    alive: bool
    """Whether the engine still answers."""

    @property
    def model(self) -> TemplateModel:
        """Its vocabulary and templates; used on one thread."""
        ...

    def submit(self, request: TokenRequest) -> TokenStream:
        """Start a request; on the event loop's thread. Raises BackendError."""
        ...

    def close(self) -> None:
        """Free the model; safe to call twice."""


_PENALTIES_SINCE = (1, 3, 24)
"""The release candidate of 1.3 since which its default sampler applies penalties."""
_PENALTIES = ("penalty_repeat", "penalty_freq", "penalty_present")
_TOO_LONG = re.compile(r"max_num_tokens|max_seq_len|exceed", re.IGNORECASE)
_LOAD_ERRORS = (RuntimeError, ValueError, TypeError, OSError, ImportError, AssertionError)


class TensorRtModel:
    """The tokenizer that TensorRT-LLM has loaded, in the form that prompts need."""

    def __init__(self, tokenizer: Any, ends: tuple[int, ...]) -> None:
        self._tokenizer = tokenizer
        fast = getattr(tokenizer.tokenizer, "backend_tokenizer", None)
        if fast is None:
            raise ModelLoadError(
                "The model has no fast tokenizer (tokenizer.json); run it with `trtllm-serve` and "
                "give the provider that server's --base-url."
            )
        eos: int | None = tokenizer.eos_token_id
        all_ends = (*([] if eos is None else [eos]), *ends)
        bos: int | None = tokenizer.tokenizer.bos_token_id
        self.vocab = HubVocabulary(tokenizer, fast.to_str(), all_ends, bos)

    def chat_template(self, name: str | None = None) -> str:
        """The tokenizer's template, "" if it has none; with a name, the template for tools."""
        # A tokenizer with several templates chooses that for tools if there are any.
        tools: list[dict[str, Any]] | None = None if name is None else [{}]
        try:
            template: str = self._tokenizer.get_chat_template(tools=tools)
        except ValueError:
            return ""
        return template


class TensorRtEngine:
    """One `tensorrt_llm.LLM`."""

    def __init__(self, api: Any, llm: Any, provider: Provider, facts: ModelFacts) -> None:
        """Takes ownership of the objects from `load_engine`."""
        self._api = api
        self._llm = llm
        self.model = TensorRtModel(llm.tokenizer, facts.ends)
        sizes = [size for size in (provider.context_size, facts.context_size) if size]
        # An engine was built for its size; of a checkpoint the user may ask more or less.
        self.context_size = min(sizes) if facts.is_engine else sizes[0]
        version = str(_import("tensorrt_llm").__version__)
        self.unsupported: Mapping[str, str] = {} if facts.is_engine else _unsupported(version)
        self.guides = bool(provider.guided_decoding)
        self.alive = True

    def submit(self, request: TokenRequest) -> TokenStream:
        """Start a request; raises BackendError."""
        values = dict(request.parameters)
        if request.guide is not None:
            values["guided_decoding"] = self._api.GuidedDecodingParams(**request.guide)
        params = self._api.SamplingParams(**values)
        try:
            output = self._llm.generate_async(
                list(request.tokens), sampling_params=params, streaming=True
            )
        except (RuntimeError, ValueError) as error:
            raise self.failure(error, len(request.tokens)) from error
        return TensorRtStream(self, output, len(request.tokens))

    def failure(self, error: Exception, prompt_tokens: int) -> BackendError:
        """The error to raise for one of TensorRT-LLM's; only a request's own leaves it alive."""
        is_of_request = isinstance(error, self._api.RequestError | ValueError)
        if not is_of_request:
            self.alive = False
            return BackendError(f"TensorRT-LLM failed and has to be loaded again: {error}")
        if _TOO_LONG.search(str(error)):
            return ContextFullError(f"TensorRT-LLM: {error}", None, prompt_tokens)
        return InvalidRequestError(f"TensorRT-LLM refuses the request: {error}")

    def close(self) -> None:
        """Free the model; safe to call twice."""
        self.alive = False
        self._llm.shutdown()


class TensorRtStream:
    """One `RequestOutput` while it grows."""

    def __init__(self, engine: TensorRtEngine, output: Any, prompt_tokens: int) -> None:
        self._engine = engine
        self._output = output
        self._prompt_tokens = prompt_tokens

    async def steps(self) -> AsyncGenerator[Step]:
        """The output since the last step; raises BackendError."""
        sent_tokens = 0
        try:
            async for output in self._output:
                answer = output.outputs[0]  # one answer was requested
                tokens: list[int] = answer.token_ids  # all of the answer's so far
                logprobs: list[Any] = answer.logprobs or []
                yield Step(
                    tokens=tuple(tokens[sent_tokens:]),
                    finish=answer.finish_reason or "",
                    cached=getattr(output, "cached_tokens", 0),  # since 1.1
                    logprobs=tuple(map(_logprobs, logprobs[sent_tokens : len(tokens)])) or None,
                )
                sent_tokens = len(tokens)
        except (RuntimeError, ValueError) as error:
            raise self._engine.failure(error, self._prompt_tokens) from error

    def abort(self) -> None:
        """Stop the work."""
        if not self._output.finished:
            self._output.abort()


def load_engine(provider: Provider, facts: ModelFacts) -> TensorRtEngine:
    """Load the provider's model, a directory or a name on the hub; takes minutes.

    With 0 and "" in a setting TensorRT-LLM decides. Raises ModelLoadError.
    """
    with contextlib.redirect_stdout(sys.stderr):  # it prints, and stdout is for the answer
        check_machine(provider)
        api = _import("tensorrt_llm.llmapi")
        maker = _import("tensorrt_llm._tensorrt_engine") if facts.is_engine else api
        arguments = llm_arguments(provider, facts)
        try:
            cache = api.KvCacheConfig(
                enable_block_reuse=True, free_gpu_memory_fraction=provider.gpu_memory
            )
            llm = maker.LLM(provider.model, kv_cache_config=cache, **arguments)
        except _LOAD_ERRORS as error:
            raise ModelLoadError(f"TensorRT-LLM can't load {provider.model}: {error}") from error
        try:
            return TensorRtEngine(api, llm, provider, facts)
        except ModelLoadError:  # its tokenizer can't be used
            llm.shutdown()
            raise


def llm_arguments(provider: Provider, facts: ModelFacts) -> dict[str, Any]:
    """The arguments of `LLM` beside the model and its cache."""
    result: dict[str, Any] = {
        "tokenizer": provider.tokenizer or None,
        "trust_remote_code": provider.trust_remote_code,
        "tensor_parallel_size": provider.tensor_parallel,
        "pipeline_parallel_size": provider.pipeline_parallel,
    }
    if provider.max_batch_size:
        result["max_batch_size"] = provider.max_batch_size
    if provider.guided_decoding:
        result["guided_decoding_backend"] = provider.guided_decoding
    if not facts.is_engine:  # an engine has its own build settings
        result["max_seq_len"] = provider.context_size or facts.context_size
        result["enable_chunked_prefill"] = True  # for prompts over 8192 tokens
    return result


def check_machine(provider: Provider) -> None:
    """Raise ModelLoadError, with advice, if the package or its GPUs are missing."""
    if importlib.util.find_spec("tensorrt_llm") is None:
        raise ModelLoadError(
            "TensorRT-LLM is not installed here: `pip install tensorrt-llm` (Linux with an NVIDIA "
            "GPU), or start `trtllm-serve` elsewhere and give the provider its --base-url."
        )
    needed = provider.tensor_parallel * provider.pipeline_parallel
    gpus = int(_import("torch").cuda.device_count())
    if gpus < needed:
        there = "no NVIDIA GPU" if gpus == 0 else f"only {gpus} NVIDIA GPU{'s' * (gpus > 1)}"
        raise ModelLoadError(
            f"TensorRT-LLM needs {needed} GPU{'s' * (needed > 1)} for this provider "
            f"and finds {there}; check `nvidia-smi`, tensor-parallel and pipeline-parallel, or "
            "give the provider a --base-url of `trtllm-serve`."
        )


def _import(name: str) -> Any:
    """The module, which has no types; raises ModelLoadError if its import fails."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelLoadError(f"TensorRT-LLM is installed but can't be used: {error}") from error


def _unsupported(version: str) -> Mapping[str, str]:
    """The sampling parameters that this version accepts but does not apply."""
    match = re.match(r"(\d+)\.(\d+)(?:\.\d+)?(?:rc(\d+))?", version)
    if match is None:
        return {}
    # A release has no number of a candidate, and comes after all candidates.
    major, minor, candidate = (int(n) if n else sys.maxsize for n in match.groups())
    if (major, minor, candidate) >= _PENALTIES_SINCE:
        return {}
    reason = f"TensorRT-LLM {version} does not apply it, 1.3.0 does; leave it out"
    return dict.fromkeys(_PENALTIES, reason)


def _logprobs(at_place: object) -> Mapping[int, float]:
    """The log probabilities at one place of the answer, by the numbers of tokens."""
    if not isinstance(at_place, dict):
        return {}
    return {number: entry.logprob for number, entry in cast(dict[int, Any], at_place).items()}

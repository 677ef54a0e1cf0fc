"""A package `tensorrt_llm` that takes what the real one takes, and nothing else."""

import json
import re
import sys
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from inspect import Parameter, Signature
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from tests.backends.tensorrt import signatures


class RequestError(RuntimeError):
    """As the real one: one request failed."""


class Tokenizer:
    """`TransformersTokenizer` around a fast tokenizer of single bytes."""

    def __init__(self, template: str = "", fast: str | None = None, eos: int | None = 257) -> None:
        self._template = template
        self.encoded: list[tuple[str, dict[str, Any]]] = []
        added = json.loads(fast or "{}").get("added_tokens", [])
        self._added = {token["content"]: token for token in added}
        backend = None if fast is None else SimpleNamespace(to_str=lambda: fast)
        self.tokenizer = SimpleNamespace(backend_tokenizer=backend, bos_token_id=256)
        self.eos_token_id = eos

    def encode(self, text: str, *args: Any, **kwargs: Any) -> list[int]:
        self.encoded.append((text, kwargs))
        splits = kwargs.get("split_special_tokens", False)
        whole = {c: t["id"] for c, t in self._added.items() if not (splits and t["special"])}
        parts = re.split("(" + "|".join(map(re.escape, whole)) + ")", text) if whole else [text]
        return [n for p in parts for n in ([whole[p]] if p in whole else p.encode())]

    def get_chat_template(
        self, chat_template: str | None = None, tools: list[dict[str, Any]] | None = None
    ) -> str:
        if not self._template:
            raise ValueError("Cannot use chat template functions")
        return self._template


@dataclass
class Record:
    """What was asked of the package, and what it is to answer."""

    gpus: int = 1
    version: str = "1.2.0rc2"
    llm: dict[str, Any] = field(default_factory=dict[str, Any])
    engine_llm: bool = False
    cache: dict[str, Any] = field(default_factory=dict[str, Any])
    requests: list[tuple[list[int], dict[str, Any]]] = field(
        default_factory=list[tuple[list[int], dict[str, Any]]]
    )
    answer: Sequence[tuple[list[int], str]] = ()
    """Token numbers of each step, and the finish reason with the last."""
    logprobs: list[dict[int, Any]] = field(default_factory=list[dict[int, Any]])
    cached: int = 0
    refuses: Exception | None = None
    fails: Exception | None = None
    aborted: int = 0
    shut_down: int = 0
    tokenizer: Tokenizer = field(default_factory=Tokenizer)


def checked(
    values: Mapping[str, Any], known: Mapping[str, type | tuple[type, ...]], error: type[Exception]
) -> None:
    """Raise `error` for a name that is not known, TypeError for a value of another type."""
    for name, value in values.items():
        if name not in known:
            raise error(f"unexpected argument {name}")
        kinds = known[name]
        if value is not None and not isinstance(value, kinds):
            raise TypeError(f"{name} must be {kinds}, got {value!r}")


def signature(first: str, behind: Mapping[str, object], *, others: bool = False) -> Signature:
    """The signature of a method, without `self`."""
    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter(first, kind)]
    parameters += [Parameter(name, kind, default=value) for name, value in behind.items()]
    if others:
        parameters.append(Parameter("kwargs", Parameter.VAR_KEYWORD))
    return Signature(parameters)


class Completion:
    """`CompletionOutput`: nothing but what it has."""

    def __init__(self, **values: Any) -> None:
        unknown = set(values) - set(signatures.COMPLETION_OUTPUT)
        assert not unknown
        self.__dict__.update(values)


class Output:
    """`RequestOutput` of a streamed request: an asynchronous iterator that gives itself."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._steps = iter(record.answer)
        self.finished = False
        self.cached_tokens = record.cached
        self.outputs = [Completion(index=0, token_ids=[], logprobs=[], finish_reason=None, text="")]

    def __aiter__(self) -> AsyncIterator["Output"]:
        return self

    async def __anext__(self) -> "Output":
        if self.finished:
            raise StopAsyncIteration
        step = next(self._steps, None)
        if step is None:
            if self._record.fails is not None:
                raise self._record.fails
            raise StopAsyncIteration
        tokens, reason = step
        assert not reason or reason in signatures.FINISH_REASONS
        answer = cast(Any, self.outputs[0])
        answer.token_ids.extend(tokens)
        answer.logprobs = self._record.logprobs[: len(answer.token_ids)]
        answer.finish_reason = reason or None
        self.finished = bool(reason)
        return self

    def abort(self) -> None:
        self._record.aborted += 1


@contextmanager
def installed(record: Record) -> Generator[Record]:
    """The package is there, and torch with `record.gpus` GPUs, until the block ends."""
    modules = _modules(record)
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield record
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _modules(record: Record) -> dict[str, ModuleType]:
    torch, package, api = (_module(n) for n in ("torch", "tensorrt_llm", "tensorrt_llm.llmapi"))
    engine = _module("tensorrt_llm._tensorrt_engine")
    vars(torch)["cuda"] = SimpleNamespace(device_count=lambda: record.gpus)
    vars(package)["__version__"] = record.version
    names: dict[str, Any] = {
        "LLM": _llm(record, engine=False),
        "RequestError": RequestError,
        "SamplingParams": _keywords("SamplingParams", signatures.SAMPLING, TypeError),
        "GuidedDecodingParams": _keywords("GuidedDecodingParams", signatures.GUIDED, TypeError),
        "KvCacheConfig": _keywords("KvCacheConfig", signatures.KV_CACHE, ValueError),
    }
    vars(api).update(names)
    vars(package)["llmapi"] = api
    vars(engine)["LLM"] = _llm(record, engine=True)
    return {m.__name__: m for m in (torch, package, api, engine)}


def _module(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    return module


def _keywords(
    name: str, known: Mapping[str, type | tuple[type, ...]], error: type[Exception]
) -> Any:
    def take(self: Any, **values: Any) -> None:
        checked(values, known, error)
        self.values = values

    return type(name, (), {"__init__": take})


def _llm(record: Record, *, engine: bool) -> Any:
    construction = signature("model", signatures.LLM_EXPLICIT, others=True)
    generation = signature("inputs", signatures.GENERATE_ASYNC)

    class LLM:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            bound = construction.bind(*args, **kwargs).arguments
            others: dict[str, Any] = bound.pop("kwargs", {})
            checked(others, signatures.LLM_OTHERS, ValueError)
            record.llm, record.engine_llm = {**bound, **others}, engine
            record.cache = record.llm["kv_cache_config"].values
            if record.refuses is not None and not record.requests:
                raise record.refuses

        @property
        def tokenizer(self) -> Tokenizer:
            return record.tokenizer

        def generate_async(self, *args: Any, **kwargs: Any) -> Output:
            bound = generation.bind(*args, **kwargs).arguments
            params = bound["sampling_params"]
            assert type(params).__name__ == "SamplingParams"
            assert bound["streaming"] is True
            record.requests.append((bound["inputs"], params.values))
            if record.refuses is not None:
                raise record.refuses
            return Output(record)

        def shutdown(self) -> None:
            record.shut_down += 1

    return LLM

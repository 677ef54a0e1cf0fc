"""The part that can't be run: each of its calls against the package's own signatures."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from shepherd.errors import (
    BackendError,
    ContextFullError,
    InvalidRequestError,
)
from shepherd.events import FinishReason
from shepherd.messages import ToolSpec
from shepherd.session import OutputFormat
from tests.backends.llamacpp.support import Recorder
from tests.backends.tensorrt.package import RequestError, installed
from tests.backends.tensorrt.support import (
    CALL,
    CALLED,
    END,
    START,
    model,
    opened,
    record,
    session,
    text,
)


async def test_a_whole_conversation(tmp_path: Path) -> None:
    pieces = text("gr\u00fc\u00df dich")
    made = record((pieces[:3], ""), (pieces[3:], ""), ([END], "stop"), cached=5)
    with installed(made):
        backend = await opened(model(tmp_path))
        recorder = Recorder()
        result = await backend.generate_from_session(session(), recorder)
        await backend.aclose()
    assert result.message.content == recorder.text == "gr\u00fc\u00df dich"
    assert result.finish_reason is FinishReason.STOP
    prompt, params = made.requests[0]
    rendered = text(START, "user\nhi <|im_end|>", END, "\n", START, "assistant\n")
    assert prompt == rendered  # what the user said is text, not a token that ends their message
    assert result.stats.prompt_tokens == len(prompt)
    assert (result.stats.cached_tokens, result.stats.completion_tokens) == (5, len(pieces))
    assert backend.info.context_size == 512 == made.llm["max_seq_len"]
    assert params["max_tokens"] == 512 - len(prompt)
    assert params["stop_token_ids"] == [END]
    assert params["detokenize"] is False
    assert params["temperature"] > 0
    assert params["seed"] >= 0
    assert made.shut_down == 1
    assert made.aborted == 0


async def test_settings_reach_the_package(tmp_path: Path) -> None:
    made = record(gpus=4)
    with installed(made):
        backend = await opened(
            model(tmp_path),
            tensor_parallel=2,
            pipeline_parallel=2,
            gpu_memory=0.5,
            max_batch_size=8,
            context_size=256,
            guided_decoding="xgrammar",
            tokenizer="other/tokenizer",
            trust_remote_code=True,
        )
        await backend.aclose()
    cache = made.llm.pop("kv_cache_config")
    assert cache.values == {"enable_block_reuse": True, "free_gpu_memory_fraction": 0.5}
    assert made.llm == {
        "model": str(tmp_path),
        "tokenizer": "other/tokenizer",
        "trust_remote_code": True,
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "max_batch_size": 8,
        "guided_decoding_backend": "xgrammar",
        "max_seq_len": 256,
        "enable_chunked_prefill": True,
    }
    assert not made.engine_llm


async def test_a_built_engine_has_its_own_class_and_size(tmp_path: Path) -> None:
    made = record(([END], "stop"), version="1.0.0")
    with installed(made):
        folder = model(tmp_path, build_config={"max_seq_len": 300})
        backend = await opened(folder, context_size=1000)
        asked = session(penalty_freq=0.5, penalty_present=0.5, penalty_repeat=1.1)
        await backend.generate_from_session(asked, Recorder())
        await backend.aclose()
    assert made.engine_llm
    assert backend.info.context_size == 300
    assert not made.llm.keys() & {"max_seq_len", "enable_chunked_prefill"}
    params = made.requests[0][1]
    names = ("repetition_penalty", "frequency_penalty", "presence_penalty")
    assert [params[name] for name in names] == [1.1, 0.5, 0.5]


@pytest.mark.parametrize(
    ("version", "applied"),
    [("1.0.0", False), ("1.2.0rc2", False), ("1.2.1", False), ("1.3.0rc7", False),
     ("1.3.0rc24", True), ("1.3.0", True), ("1.10.0rc1", True), ("2.0.0", True)],
)  # fmt: skip
async def test_penalties_that_a_version_ignores(
    tmp_path: Path, version: str, *, applied: bool
) -> None:
    made = record(([END], "stop"), version=version)
    with installed(made):
        backend = await opened(model(tmp_path))
        ask = backend.generate_from_session(session(penalty_present=1.0), Recorder())
        if applied:
            await ask
            assert made.requests[0][1]["presence_penalty"] == 1.0
        else:
            with pytest.raises(InvalidRequestError, match=rf"penalty_present.*{version}"):
                await ask
        await backend.aclose()


async def test_all_that_can_be_sampled(tmp_path: Path) -> None:
    made = record(([END], "stop"), version="1.3.0")
    wanted = {"temperature": 0.5, "top_p": 0.8, "top_k": 5, "min_p": 0.1, "seed": 9}
    with installed(made):
        backend = await opened(model(tmp_path), guided_decoding="llguidance")
        asked = session(**wanted, logprobs=0, stop=("x",))
        asked.output_format = OutputFormat({"type": "object"})
        await backend.generate_from_session(asked, Recorder(), 7)
        await backend.generate_from_session(session(temperature=0.0, ignore_eos=True), Recorder())
        await backend.aclose()
    first, second = (params for _, params in made.requests)
    assert {name: first[name] for name in wanted} == wanted
    assert (first["max_tokens"], first["logprobs"]) == (7, 1)
    assert first["guided_decoding"].values == {"json": {"type": "object"}}
    assert second["top_k"] == 1
    assert second["ignore_eos"] is True
    assert not second.keys() & {"temperature", "top_p", "stop_token_ids", "stop", "logprobs"}


async def test_log_probabilities(tmp_path: Path) -> None:
    chances = [{65: -0.1, 66: -2.0}, {67: -1.0, 68: -0.5}]
    entries = [{n: SimpleNamespace(logprob=p) for n, p in place.items()} for place in chances]
    made = record(([65, 67], ""), ([END], "stop"), logprobs=entries)
    with installed(made):
        backend = await opened(model(tmp_path))
        result = await backend.generate_from_session(session(logprobs=1), Recorder())
        await backend.aclose()
    assert result.logprobs is not None
    assert [(t.text, t.logprob) for t in result.logprobs] == [("A", -0.1), ("C", -1.0)]
    assert [t.top[0].text for t in result.logprobs] == ["A", "D"]


async def test_printed_calls_are_understood(tmp_path: Path) -> None:
    call = '\n{"name": "look", "arguments": {"at": "x"}}\n'
    made = record((text("So.\n", CALL, call, CALLED), ""), ([END], "stop"))
    with installed(made):
        backend = await opened(model(tmp_path))
        asked = session()
        asked.tools = [ToolSpec("look", "Look.")]
        result = await backend.generate_from_session(asked, Recorder())
        await backend.aclose()
    assert result.message.content == "So."
    assert [(c.name, c.arguments) for c in result.message.tool_calls] == [("look", {"at": "x"})]
    assert result.finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("failure", "raised", "alive"),
    [
        (RequestError("prompt length (600) should not exceed max_num_tokens"), ContextFullError,
         True),
        (RequestError("bad request"), InvalidRequestError, True),
        (ValueError("bad value"), InvalidRequestError, True),
        (RuntimeError("LLM is shutting down"), BackendError, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("late", [False, True])
async def test_its_errors_become_ours(
    tmp_path: Path, failure: Exception, raised: type[BackendError], *, alive: bool, late: bool
) -> None:
    made = record((text("abc"), ""))
    with installed(made):
        backend = await opened(model(tmp_path))
        made.refuses, made.fails = (None, failure) if late else (failure, None)
        with pytest.raises(raised) as caught:
            await backend.generate_from_session(session(), Recorder())
        assert type(caught.value) is raised
        assert backend.alive is alive
        await backend.aclose()
    assert made.aborted == late


async def test_an_answer_without_an_end_is_an_error(tmp_path: Path) -> None:
    made = record((text("abc"), ""))
    with installed(made):
        backend = await opened(model(tmp_path))
        with pytest.raises(BackendError, match="without saying why"):
            await backend.generate_from_session(session(), Recorder())
        await backend.aclose()


async def test_saying_no_aborts(tmp_path: Path) -> None:
    made = record((text("abc"), ""), (text("def"), ""), ([END], "stop"))
    with installed(made):
        backend = await opened(model(tmp_path))
        result = await backend.generate_from_session(session(), Recorder(stop_at=0))
        await backend.aclose()
    assert result.message.content == "abc"
    assert made.aborted == 1

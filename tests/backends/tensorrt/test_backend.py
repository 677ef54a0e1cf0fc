"""Conversations with real tokens through everything that TensorRT-LLM's part stands behind."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from shepherd.backends.base import Generation
from shepherd.backends.tensorrt.backend import TensorRtBackend
from shepherd.errors import ContextFullError, InvalidRequestError
from shepherd.events import CallbackEvent, Event, FinishReason
from shepherd.messages import Message
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.backends.llamacpp.support import GREEDY, Recorder, conversation, loaded
from tests.backends.tensorrt.pup_engine import PupEngine

LONG = "The quick brown fox jumps over the lazy dog. " * 40


@asynccontextmanager
async def opened(**values: object) -> AsyncGenerator[tuple[TensorRtBackend, PupEngine]]:
    engine = await PupEngine.load(**values)  # type: ignore[arg-type]  # settings of any type
    backend = await TensorRtBackend.open("pup", lambda: engine, GREEDY)
    try:
        yield backend, engine
    finally:
        await backend.aclose()
        assert not backend.alive


async def generate(
    backend: TensorRtBackend, session: Session, recorder: Recorder | None = None, most: int = 0
) -> Generation:
    return await backend.generate_from_session(session, recorder or Recorder(), most)


async def test_it_answers_as_llama_cpp_does_with_the_same_model() -> None:
    async with loaded(parallel=2) as reference, opened() as (backend, _):
        for prompt, tools in (("Hello", False), ("What is in src?", True)):
            session = conversation(prompt, tools=tools)
            expected = await reference.generate_from_session(session, Recorder())
            recorder = Recorder()
            result = await generate(backend, session, recorder)
            assert result.message.content == expected.message.content
            calls = [(c.name, c.arguments) for c in result.message.tool_calls]
            assert calls == [(c.name, c.arguments) for c in expected.message.tool_calls]
            assert result.finish_reason == expected.finish_reason
            assert recorder.text == result.message.content
            assert result.stats.prompt_tokens == expected.stats.prompt_tokens
            assert result.stats.completion_tokens == expected.stats.completion_tokens
            kinds = [CallbackEvent.STATS, CallbackEvent.STOP]
            kinds += [CallbackEvent.TOOL_CALL] * len(calls)
            assert recorder.kinds()[-len(kinds) :] == kinds
            count = await backend.count_session_tokens(session)
            assert count == result.stats.prompt_tokens
            assert backend.info.count_error is None


async def test_history_comes_back_as_the_same_tokens() -> None:
    async with opened() as (backend, engine):
        session = conversation()
        for prompt in ("Hello", "And now?"):
            await ask_one(backend, session, prompt)
        first, second = (list(request.tokens) for request in engine.requests)
        assert second[: len(first)] == first
        stats = (await generate(backend, conversation_of(session, "Well?"))).stats
        assert stats.cached_tokens > len(second)


async def ask_one(backend: TensorRtBackend, session: Session, prompt: str) -> None:
    session.add(Message.user(prompt))
    session.add((await generate(backend, session)).message)


def conversation_of(session: Session, prompt: str) -> Session:
    session.add(Message.user(prompt))
    return session


async def test_many_at_once_get_what_each_would_get_alone() -> None:
    async with opened(parallel=4) as (backend, _):
        prompts = ["Hello", "Who are you?", "Name a color.", "Goodbye", "What is 2+2?"]
        together = await asyncio.gather(
            *(generate(backend, conversation(p), None, 12) for p in prompts)
        )
        assert all(r.finish_reason in (FinishReason.STOP, FinishReason.LENGTH) for r in together)
        assert all(r.message.content for r in together)
        assert all(0 < r.stats.completion_tokens <= 12 for r in together)


async def test_a_stop_string_ends_the_answer_and_the_work() -> None:
    async with opened() as (backend, engine):
        whole = (await generate(backend, conversation("Hello"))).message.content
        stop = whole[3:6]
        session = conversation("Hello")
        session.sampling = Sampling(temperature=0.0, stop=(stop,))
        result = await generate(backend, session)
        assert result.message.content == whole[: whole.index(stop)]
        assert result.stop_string == stop
        assert result.finish_reason is FinishReason.STOP
        assert engine.aborted > 0
        assert "stop" not in engine.requests[-1].parameters


async def test_the_limit_and_the_end_of_the_context() -> None:
    async with opened(context_size=256) as (backend, engine):
        result = await generate(backend, conversation("Hello"), None, 2)
        assert result.finish_reason is FinishReason.LENGTH
        assert result.stats.completion_tokens == 2
        session = conversation("Tell a long story.")
        prompt = await backend.count_session_tokens(session)
        await generate(backend, session)
        assert engine.requests[-1].parameters["max_tokens"] == 256 - prompt
        with pytest.raises(ContextFullError) as caught:
            await generate(backend, conversation(LONG))
        count = await backend.count_session_tokens(conversation(LONG))
        assert caught.value.prompt_tokens == count
        assert caught.value.tokens_over == count - (256 - 32)
        with pytest.raises(ContextFullError):
            await backend.prefill_session(conversation(LONG), Recorder())


async def test_saying_no_stops_the_work() -> None:
    async with opened() as (backend, engine):
        recorder = Recorder(stop_at=0)
        result = await generate(backend, conversation("Hello"), recorder)
        assert result.finish_reason is FinishReason.CANCELLED
        assert len(recorder.events) == 1
        assert engine.aborted == 1
        assert (await generate(backend, conversation("Hello"))).message.content


async def test_a_cancelled_task_stops_the_work() -> None:
    async with opened() as (backend, engine):
        spoke = asyncio.Event()

        def listen(_event: Event) -> bool:
            spoke.set()
            return True

        session = conversation("Tell a long story.")
        session.sampling = Sampling(ignore_eos=True, temperature=0.0)
        task = asyncio.create_task(backend.generate_from_session(session, listen))
        await asyncio.wait_for(spoke.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.aborted == 1


async def test_what_there_is_not_is_refused_by_name() -> None:
    unsupported = {"penalty_freq": "it would be ignored"}
    async with opened(unsupported=unsupported) as (backend, engine):
        for name, value in (
            ("dry_multiplier", 0.8),
            ("mirostat", 2),
            ("typical_p", 0.5),
            ("samplers", ("top_k",)),
            ("logit_bias", ((1, 1.0),)),
            ("penalty_freq", 0.5),
            ("top_p", 1.5),
        ):
            session = conversation("Hello")
            session.sampling = Sampling(**{name: value})  # type: ignore[arg-type]  # by name
            with pytest.raises(InvalidRequestError, match=name) as caught:
                await backend.prefill_session(session, Recorder())
            assert caught.value.param == name
        session = conversation("Hello", tools=True)
        session.tool_choice = ToolChoice()
        with pytest.raises(InvalidRequestError, match="tool_choice"):
            await backend.prefill_session(session, Recorder())
        session = conversation("Hello")
        session.output_format = OutputFormat({"type": "object"})
        with pytest.raises(InvalidRequestError, match="guided-decoding"):
            await backend.prefill_session(session, Recorder())
        assert engine.requests == []


async def test_a_schema_is_handed_on() -> None:
    async with opened() as (backend, engine):
        engine.guides = True
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        session = conversation("Hello")
        session.output_format = OutputFormat(schema)
        await generate(backend, session, None, 4)
        assert engine.requests[-1].guide == {"json": schema}
        session.output_format = OutputFormat(grammar='root ::= "a"')
        await generate(backend, session, None, 4)
        assert engine.requests[-1].guide == {"grammar": 'root ::= "a"'}


async def test_several_answers_to_one_prompt_have_their_own_seeds() -> None:
    async with opened() as (backend, engine):
        session = conversation("Hello")
        session.sampling = Sampling(seed=7, temperature=1.0)
        handles = await backend.prefill_choices(session, Recorder(), 2)
        for handle in handles:
            async with handle:
                result = await backend.generate_from_prefilled(handle, Recorder(), 3)
                assert result.stats.completion_tokens <= 3
        assert len({request.parameters["seed"] for request in engine.requests}) == 2

"""Conversations through the whole engine."""

import asyncio
import json
from pathlib import Path

import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.errors import ContextFullError, InvalidRequestError
from shepherd.events import CallbackEvent, FinishReason, Stats, Topic
from shepherd.messages import Message, ToolCall
from shepherd.sampling import Sampling
from shepherd.session import Session
from tests.backends.llamacpp.support import (
    EXACT,
    GREEDY,
    LONG,
    PUP,
    Recorder,
    ask,
    conversation,
    generate,
    loaded,
)
from tests.backends.llamacpp.tiny import write_llama

UNRELATED = Session("z" * 50, [Message.user("y" * 50)], sampling=GREEDY)


async def test_events_come_in_order_and_agree_with_the_result() -> None:
    async with loaded() as backend:
        recorder = Recorder()
        result = await generate(backend, conversation("Hello"), recorder)
        kinds = recorder.kinds()
        assert kinds[-2:] == [CallbackEvent.STATS, CallbackEvent.STOP]
        assert recorder.events[-1][1] == result.finish_reason == FinishReason.STOP
        assert recorder.text == result.message.content != ""
        stats = result.stats
        assert json.loads(recorder.events[-2][1]) == stats.measures()
        assert stats.context_used == stats.prompt_tokens + stats.completion_tokens
        assert stats.context_size == backend.info.context_size >= 4096
        assert stats.prefill_seconds > 0
        assert stats.decode_seconds > 0


async def test_a_tool_call_and_its_result() -> None:
    async with loaded() as backend:
        session = conversation("What is in src?", tools=True)
        recorder = Recorder()
        result = await generate(backend, session, recorder)
        assert result.finish_reason is FinishReason.TOOL_CALLS
        (call,) = result.message.tool_calls
        assert call.name == "list_directory"
        assert recorder.kinds()[-2:] == [CallbackEvent.STOP, CallbackEvent.TOOL_CALL]
        session.add(result.message)
        session.add(Message.tool(call, "a.py\nb.py"))
        answer = await generate(backend, session)
        assert answer.stats.cached_tokens >= result.stats.context_used
        assert answer.finish_reason is FinishReason.STOP


async def test_without_tools_nothing_is_taken_for_a_call() -> None:
    async with loaded() as backend:
        session = conversation()
        call = ToolCall("c", "list_directory", {"path": "src"})
        for _ in range(2):
            session.add(Message.user("What is in src?"))
            session.add(Message.assistant("", tool_calls=(call,)))
            session.add(Message.tool(call, "a.py"))
        session.add(Message.user("What is in lib?"))
        result = await generate(backend, session)
        assert result.message.tool_calls == ()
        assert result.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("kind", ["pup", "llama", "gemma", "mamba"])
async def test_warm_and_cold_give_the_same_text_and_only_new_tokens_are_decoded(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """A random recurrent model rounds too far for texts: its logits are compared elsewhere."""
    path = PUP if kind == "pup" else request.getfixturevalue(kind)
    async with loaded(path, parallel=1, cache_ram_mib=0, **EXACT) as backend:
        session = conversation()
        in_memory = 0
        for prompt in ["Hello", "What is in src?", "Who are you?", "What is in docs?"]:
            session.add(Message.user(prompt))
            warm = await generate(backend, session, max_tokens=30)
            texts = "".join(message.content for message in session.messages)
            if "<|" not in texts and "<unk>" not in texts:
                assert warm.stats.cached_tokens == in_memory
            await generate(backend, UNRELATED, max_tokens=1)
            cold = await generate(backend, session, max_tokens=30)
            assert cold.stats.cached_tokens < 12
            assert cold.message.content == warm.message.content or kind == "mamba"
            ended = cold.finish_reason is FinishReason.STOP
            in_memory = cold.stats.context_used - (0 if ended else 1)
            session.add(cold.message)


async def test_many_at_once_say_what_each_says_alone(llama: Path) -> None:
    prompts = [f"What is in {name}?" for name in ("src", "lib", "docs", "tests")]
    prompts += ["Hello", "Who are you?", LONG[:400], "Show me notes.txt"]
    async with loaded(llama, parallel=1, **EXACT) as alone:
        expected = [await _text(alone, prompt) for prompt in prompts]
    async with loaded(llama, parallel=4, context_size=1024, n_batch=128, **EXACT) as backend:
        texts = await asyncio.gather(*(_text(backend, prompt) for prompt in prompts))
        assert texts == expected
        assert backend.running == 0


async def test_more_than_the_memory_holds_still_finishes(llama: Path) -> None:
    """Four long prompts in a context for one and a half: the youngest wait, none fails."""
    prompts = [f"{number} {LONG[:250]}" for number in range(4)]
    async with loaded(llama, parallel=1, **EXACT) as alone:
        expected = [await _text(alone, prompt, 100) for prompt in prompts]
    async with loaded(llama, parallel=4, **EXACT) as backend:
        texts = await asyncio.gather(*(_text(backend, p, 100) for p in prompts))
        assert texts == expected


async def _text(backend: LlamaCppBackend, prompt: str, max_tokens: int = 60) -> str:
    result = await generate(backend, conversation(prompt), max_tokens=max_tokens)
    return result.message.content


async def test_max_tokens_ends_the_answer() -> None:
    async with loaded() as backend:
        result = await generate(backend, conversation("Hello"), max_tokens=3)
        assert result.finish_reason is FinishReason.LENGTH
        assert result.stats.completion_tokens == 3


async def test_a_full_context_ends_the_answer(llama: Path) -> None:
    async with loaded(llama, context_size=256) as backend:
        result = await generate(backend, conversation("hello"))
        assert result.finish_reason is FinishReason.LENGTH
        assert result.stats.context_used == backend.info.context_size == 256
        again = await generate(backend, conversation("hello"))
        assert again.message == result.message


async def test_what_does_not_fit_is_refused_with_what_is_over() -> None:
    async with loaded(context_size=256) as backend:
        with pytest.raises(ContextFullError) as caught:
            await backend.prefill_session(conversation(LONG), Recorder())
        tokens = await backend.count_session_tokens(conversation(LONG))
        message = f"request ({tokens} tokens) exceeds the available context size (256 tokens)"
        assert str(caught.value) == message
        assert caught.value.tokens_over == tokens - (256 - 32)
        assert await ask(backend, conversation(), "Hello")


async def test_the_largest_prompt_that_fits_gets_an_answer(llama: Path) -> None:
    async with loaded(llama, context_size=256) as backend:
        empty = await backend.count_session_tokens(conversation(""))
        session = conversation("!" * (255 - empty))
        assert await backend.count_session_tokens(session) == 255
        result = await generate(backend, session)
        assert result.stats.completion_tokens == 1
        session = conversation("!" * (256 - empty))
        with pytest.raises(ContextFullError):
            await generate(backend, session)


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", 11.0), ("top_p", -0.1), ("stop", ("",)), ("seed", -1)]
)
async def test_sampling_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    async with loaded() as backend:
        session = conversation("Hello")
        session.sampling = Sampling(**{name: value})  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError, match=name):
            await backend.prefill_session(session, Recorder())
        assert backend.running == 0


async def test_a_stop_string_ends_the_answer_unseen() -> None:
    async with loaded() as backend:
        whole = await ask(backend, conversation(), "Hello")
        words = whole.split()
        stop = f"{words[2]} {words[3]}"
        session = conversation()
        session.sampling = Sampling(stop=(stop,))
        recorder = Recorder()
        text = await ask(backend, session, "Hello", recorder)
        assert text == recorder.text == whole[: whole.index(stop)]
        assert recorder.events[-1][1] == FinishReason.STOP


async def test_a_seed_gives_the_same_answer_again(llama: Path) -> None:
    async with loaded(llama, **EXACT) as backend:
        texts: list[str] = []
        for seed in (1, 1, 2):
            session = conversation()
            session.sampling = Sampling(
                temperature=1.0, top_k=0, top_p=1.0, seed=seed, penalty_repeat=1.1
            )
            texts.append(await ask(backend, session, "hello", max_tokens=20))
        assert texts[0] == texts[1] != texts[2]


async def test_a_larger_context_than_trained_is_told_once(llama: Path) -> None:
    async with loaded(llama, context_size=1024) as backend:
        first, second = Recorder(), Recorder()
        await ask(backend, conversation(), "hello", first, 1)
        await ask(backend, conversation(), "hello", second, 1)
        assert first.events[0][2] == Topic.WARNING
        assert "512" in first.events[0][1]
        assert not [1 for _, _, name in second.events if name == Topic.WARNING]


async def test_a_failing_template_is_told_once_per_session(
    tmp_path: Path,
) -> None:
    path = write_llama(tmp_path / "odd.gguf", template="{{ raise_exception('not today') }}")
    async with loaded(path) as backend:
        session = conversation()
        session.id = "one"
        first, second = Recorder(), Recorder()
        await ask(backend, session, "hello", first, 2)
        await ask(backend, session, "hello", second, 2)
        assert first.events[0][0] is CallbackEvent.SYSTEM
        assert "not today" in first.events[0][1]
        assert CallbackEvent.SYSTEM not in second.kinds()


async def test_no_to_a_warning_cancels(llama: Path) -> None:
    async with loaded(llama, context_size=1024) as backend:
        recorder = Recorder(stop_at=0)
        result = await generate(backend, conversation("hello"), recorder)
        assert result.finish_reason is FinishReason.CANCELLED
        assert len(recorder.events) == 1
        assert backend.running == 0


async def test_an_empty_prompt_is_refused(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "blank.gguf", template="{{ '' }}", bos=False)
    async with loaded(path) as backend:
        with pytest.raises(InvalidRequestError, match="empty"):
            await backend.prefill_session(conversation("hello"), Recorder())


async def test_counts_agree_with_the_statistics() -> None:
    async with loaded() as backend:
        session = conversation("Hello there")
        result = await generate(backend, session)
        assert await backend.count_session_tokens(session) == result.stats.prompt_tokens
        count = await backend.count_message_tokens(session, session.messages[0])
        assert 0 < count < result.stats.prompt_tokens


def test_speeds_are_no_wonders() -> None:
    stats = Stats(completion_tokens=1, decode_seconds=0.0)
    assert stats.decode_speed == 0.0


async def test_an_answer_is_written_again_from_a_checkpoint(hybrid: Path) -> None:
    """Where memory can't forget the old answer, only the last message's end is decoded."""
    async with loaded(hybrid, **EXACT) as backend:
        session = conversation("hello " * 20)
        first = await backend.generate_from_session(session, Recorder(), 20)
        second = await backend.generate_from_session(session, Recorder(), 20)
        assert second.message == first.message
        assert second.stats.prompt_tokens - second.stats.cached_tokens < 20


async def test_six_conversations_on_two_sequences_stay_warm() -> None:
    async with loaded(parallel=2, cache_ram_mib=64) as backend:
        sessions = [conversation(f"Hello, I am number {number}. " * 8) for number in range(6)]
        for turn in range(3):
            for session in sessions:
                if turn:
                    session.add(Message.user("And now?"))
                generation = await backend.generate_from_session(session, Recorder(), 8)
                session.add(generation.message)
                stats = generation.stats
                if turn:
                    assert stats.prompt_tokens - stats.cached_tokens < 40
                    assert stats.restored_tokens == stats.cached_tokens

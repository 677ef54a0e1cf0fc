"""Prompts without a template, and answers that continue a message."""

import math
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.errors import ContextFullError, InvalidRequestError
from shepherd.messages import Message, ToolCall
from shepherd.session import Infill, OutputFormat, RawPrompt, Session
from tests.backends.llamacpp.support import GREEDY, Recorder, conversation, loaded
from tests.backends.llamacpp.tiny import write_llama


@pytest.fixture
async def backend() -> AsyncGenerator[LlamaCppBackend]:
    async with loaded(parallel=2) as opened:
        yield opened


def raw(*parts: str | int) -> Session:
    return Session(raw_prompt=RawPrompt(parts), sampling=GREEDY)


async def test_a_rendered_prompt_gives_the_answer_of_its_conversation(
    backend: LlamaCppBackend,
) -> None:
    session = conversation("Hello")
    text = await backend.text_model.render(session)
    expected = await backend.generate_from_session(session, Recorder())
    answer = await backend.generate_from_session(raw(text), Recorder())
    assert answer.message.content == expected.message.content
    tokens = await backend.text_model.tokenize([text], begins=True)
    by_number = await backend.generate_from_session(raw(*tokens), Recorder())
    assert by_number.message == answer.message
    assert by_number.stats.prompt_tokens == len(tokens) == expected.stats.prompt_tokens
    assert by_number.stats.cached_tokens >= len(tokens) - 1


async def test_nothing_in_a_raw_answer_means_anything(backend: LlamaCppBackend) -> None:
    session = raw("Say: ")
    form = OutputFormat(grammar='root ::= "<think>\\nno</think>```\\n<tool_call>{}</tool_call>"')
    answer = await backend.generate_from_session(replace(session, output_format=form), Recorder())
    assert answer.message.content == "<think>\nno</think>```\n<tool_call>{}</tool_call>"
    assert not answer.message.reasoning


async def test_the_handle_has_the_tokens_and_the_prompt(backend: LlamaCppBackend) -> None:
    async with await backend.prefill_session(raw("One ", "two"), Recorder()) as handle:
        answer = await backend.generate_from_prefilled(handle, Recorder(), 5)
        assert handle.prompt_text.endswith("One two")
        pieces = await backend.text_model.pieces(handle.generated)
    assert len(pieces) == 5
    assert b"".join(pieces).decode("utf-8", "replace").startswith(answer.message.content)


@pytest.mark.parametrize("token", [-1, 10**9])
async def test_an_unknown_token_is_refused(backend: LlamaCppBackend, token: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"no token {token}"):
        await backend.prefill_session(raw("a", token), Recorder())


async def test_too_long_a_raw_prompt_is_refused(backend: LlamaCppBackend) -> None:
    for prompt in (raw("word " * 100_000), raw(*[5] * 100_000)):
        with pytest.raises(ContextFullError):
            await backend.prefill_session(prompt, Recorder())


async def test_a_model_without_the_tokens_for_it_does_not_infill(backend: LlamaCppBackend) -> None:
    with pytest.raises(InvalidRequestError, match="between two texts"):
        await backend.prefill_session(Session(raw_prompt=Infill("a", "b")), Recorder())


AROUND = {"pre": 3, "suf": 4, "mid": 5}
"""The numbers of the tiny model's control tokens."""


@pytest.mark.parametrize(
    ("others", "files"),
    [
        ({}, "\n\n--- snippet ---\n\nint a;"),
        (
            {"rep": 6, "sep": 7},
            "<tool_call>myproject\n</tool_call>a.h\nint a;</tool_call>filename\n",
        ),
    ],
)
async def test_a_gap_is_written_as_llama_cpp_writes_it(
    tmp_path: Path, others: dict[str, int], files: str
) -> None:
    path = write_llama(tmp_path / "model.gguf", infill=AROUND | others)
    gap = Infill("one", "two<|tool|>", "begun", (("a.h", "int a;"),))
    async with loaded(path) as tiny:
        session = Session(raw_prompt=gap, sampling=GREEDY)
        async with await tiny.prefill_session(session, Recorder()) as handle:
            text = handle.prompt_text
            special = await tiny.text_model.tokenize([text])
            answer = await tiny.generate_from_prefilled(handle, Recorder(), 4)
    around = "<s><|im_start|>one begun<|im_end|>two<|tool|><|tool|>"
    assert text.replace(" ", "") == (files + around).replace(" ", "")
    assert answer.stats.completion_tokens <= 4
    assert handle.prompt_tokens > len(special)  # in the suffix they are plain text


async def test_a_prompt_is_measured_as_its_answer_was(backend: LlamaCppBackend) -> None:
    measured = replace(GREEDY, logprobs=0)
    tokens = await backend.text_model.tokenize(["One two three. " * 30], begins=True)
    first = Session(raw_prompt=RawPrompt(tuple(tokens)), sampling=measured)
    async with await backend.prefill_session(first, Recorder()) as handle:
        answer = await backend.generate_from_prefilled(handle, Recorder(), 5)
        whole = (*tokens, *handle.generated)
    assert answer.logprobs is not None
    again = Session(raw_prompt=RawPrompt(whole, measured=True), sampling=measured)
    async with await backend.prefill_session(again, Recorder()) as handle:
        told = handle.prompt_logprobs
        assert handle.cached_tokens == 0
    assert [token.id for token in told] == [*whole]
    assert math.isnan(told[0].logprob)
    expected = [token.logprob for token in answer.logprobs]
    assert [token.logprob for token in told[len(tokens) :]] == pytest.approx(expected, abs=0.05)


async def test_an_answer_continues_the_last_message(backend: LlamaCppBackend) -> None:
    session = conversation("Hello")
    whole = await backend.generate_from_session(session, Recorder())
    text = whole.message.content
    half = text.index(" ", len(text) // 2)
    session.add(Message.assistant(text[:half]))
    session.continues = True
    rest = await backend.generate_from_session(session, Recorder())
    prompt = await backend.text_model.render(session)
    assert prompt.endswith(text[:half])
    assert text[:half] + rest.message.content == text
    assert await backend.count_session_tokens(session) == rest.stats.prompt_tokens


async def test_reasoning_is_continued_too(backend: LlamaCppBackend) -> None:
    session = conversation("Hello")
    session.add(Message.assistant("", reasoning="The user says"))
    session.continues = True
    grammar = 'root ::= " hello</think>\\n\\nHi."'
    session.output_format = OutputFormat(grammar=grammar)
    prompt = await backend.text_model.render(session)
    assert prompt.endswith("<think>\nThe user says")
    answer = await backend.generate_from_session(session, Recorder())
    assert (answer.message.reasoning, answer.message.content) == (" hello", "Hi.")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message.user("Hello")],
        [Message.user("Hello"), Message.assistant("", tool_calls=(ToolCall("a", "b", {}),))],
    ],
)
async def test_only_a_message_of_the_assistant_is_continued(
    backend: LlamaCppBackend, messages: list[Message]
) -> None:
    with pytest.raises(InvalidRequestError, match="can be continued"):
        await backend.prefill_session(Session(messages=messages, continues=True), Recorder())


async def test_progress_says_what_was_in_memory(backend: LlamaCppBackend) -> None:
    handle = await backend.prefill_session(raw("word " * 300), Recorder())
    handle.release()
    recorder = Recorder()
    handle = await backend.prefill_session(raw("word " * 300 + "and more " * 300), recorder)
    handle.release()
    assert handle.cached_tokens > 200

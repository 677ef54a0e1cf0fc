"""What a request says about sampling, through the whole engine."""

import asyncio
import math
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shepherd.backends.base import Generation
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.errors import InvalidRequestError
from shepherd.events import Event, FinishReason
from shepherd.sampling import Sampling, TokenLogprob
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.backends.llamacpp.support import GREEDY, Recorder, conversation, loaded
from tests.flat_events import TEXT_KINDS, flat

EXACT: dict[str, Any] = {"flash_attention": "off", "cache_type_k": "f32", "cache_type_v": "f32"}
"""Numbers in full width: what is rounded otherwise hardly ever decides."""
ASKING = Sampling(logprobs=3).over(GREEDY)


@pytest.fixture
async def backend() -> AsyncGenerator[LlamaCppBackend]:
    async with loaded(parallel=2) as opened:
        yield opened


def asking(session: Session, sampling: Sampling = ASKING) -> Session:
    return replace(session, sampling=sampling)


async def generate(
    backend: LlamaCppBackend, session: Session, max_tokens: int = 0
) -> tuple[Generation, tuple[TokenLogprob, ...]]:
    result = await backend.generate_from_session(session, Recorder(), max_tokens)
    assert result.logprobs is not None
    return result, result.logprobs


def text(logprobs: tuple[TokenLogprob, ...]) -> str:
    return b"".join(token.piece for token in logprobs).decode("utf-8", "replace")


async def test_every_token_of_the_content_is_told(backend: LlamaCppBackend) -> None:
    plain = await backend.generate_from_session(conversation("Hello"), Recorder())
    assert plain.logprobs is None
    result, logprobs = await generate(backend, asking(conversation("Hello")))
    assert result.message == plain.message
    assert text(logprobs) == result.message.content
    for token in logprobs:
        chances = [chance.logprob for chance in token.top]
        assert (token.piece, token.logprob) == (token.top[0].piece, pytest.approx(chances[0]))
        assert chances == sorted(chances, reverse=True)
        assert sum(map(math.exp, chances)) <= 1.0 + 1e-5
        assert len(chances) == 3


async def test_what_is_told_keeps_up_with_the_text(backend: LlamaCppBackend) -> None:
    said = ""
    session = asking(conversation("Write a Python function that adds two numbers."))

    def listen(event: Event) -> bool:
        kind, content, _, _ = flat(event)
        nonlocal said
        if kind in TEXT_KINDS:
            said += content
            assert handle.logprobs is not None
            assert text(tuple(handle.logprobs)).startswith(said)
        return True

    async with await backend.prefill_session(session, Recorder()) as handle:
        result = await backend.generate_from_prefilled(handle, listen)
    assert said == result.message.content != ""
    assert handle.logprobs == list(result.logprobs or ())


async def test_of_a_stop_string_nothing_is_told(backend: LlamaCppBackend) -> None:
    whole, _ = await generate(backend, asking(conversation("Hello")))
    words = whole.message.content.split(" ")
    assert len(words) > 3
    stopped = Sampling(stop=(f" {words[2]}",)).over(ASKING)
    result, logprobs = await generate(backend, asking(conversation("Hello"), stopped))
    assert result.stop_string == f" {words[2]}"
    assert result.message.content == " ".join(words[:2])
    assert text(logprobs).startswith(result.message.content)
    assert not text(logprobs[:-1]).startswith(result.message.content)


async def test_of_calls_and_reasoning_nothing_is_told(backend: LlamaCppBackend) -> None:
    session = asking(conversation("What is in src?", tools=True))
    result, logprobs = await generate(backend, replace(session, tool_choice=ToolChoice()))
    assert result.message.tool_calls
    assert text(logprobs) == result.message.content == ""
    thoughtful = OutputFormat(grammar='root ::= "<think>\\nhm\\n</think>\\n\\nyes <no>"')
    session = asking(conversation("Hello"))
    result, logprobs = await generate(backend, replace(session, output_format=thoughtful))
    assert (result.message.reasoning, result.message.content) == ("hm", "yes <no>")
    assert text(logprobs).strip() == "yes <no>"


async def test_several_requests_have_their_own(backend: LlamaCppBackend) -> None:
    sampling = Sampling(temperature=8.0, top_k=0, top_p=1.0, seed=5).over(ASKING)
    handles = await backend.prefill_choices(asking(conversation("Hello"), sampling), Recorder(), 2)
    said: list[str] = []
    for handle in handles:
        async with handle:
            result = await backend.generate_from_prefilled(handle, Recorder(), 12)
            assert result.logprobs is not None
            assert text(result.logprobs) == result.message.content
            said.append(result.message.content)
    assert said[0] != said[1]


async def test_a_bias_forces_and_bans(backend: LlamaCppBackend) -> None:
    forced = Sampling(logit_bias=(("Z", 100.0),)).over(GREEDY)
    result = await backend.generate_from_session(
        asking(conversation("Hello"), forced), Recorder(), 5
    )
    assert (result.message.content, result.finish_reason) == ("ZZZZZ", FinishReason.LENGTH)
    _, logprobs = await generate(backend, asking(conversation("Hello")))
    banned = Sampling(logit_bias=((logprobs[0].piece.decode(), -100.0),)).over(GREEDY)
    result = await backend.generate_from_session(
        asking(conversation("Hello"), banned), Recorder(), 5
    )
    assert not result.message.content.startswith(logprobs[0].piece.decode())


async def test_ignore_eos_goes_on_to_the_limit(backend: LlamaCppBackend) -> None:
    plain = await backend.generate_from_session(conversation("Hello"), Recorder())
    assert plain.finish_reason is FinishReason.STOP
    more = plain.stats.completion_tokens + 20
    endless = Sampling(ignore_eos=True).over(GREEDY)
    result = await backend.generate_from_session(
        asking(conversation("Hello"), endless), Recorder(), more
    )
    assert result.finish_reason is FinishReason.LENGTH
    assert result.stats.completion_tokens == more
    assert result.message.content.startswith(plain.message.content)


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        Sampling(temperature=1.0, top_k=0, top_p=1.0, seed=7),
        Sampling(temperature=1.5, seed=8, xtc_probability=0.5, dry_multiplier=0.8, min_p=0.01),
        Sampling(temperature=1.0, seed=9, mirostat=2, mirostat_tau=3.0),
    ],
)
async def test_a_seed_repeats_an_answer_alone_and_beside_others(
    sampling: Sampling, llama: Path
) -> None:
    prompts = ["hello", "the hell", "in the w", "hello hello"]

    async def answer(backend: LlamaCppBackend, prompt: str) -> str:
        session = asking(conversation(prompt), sampling)
        return (await backend.generate_from_session(session, Recorder(), 24)).message.content

    async with loaded(llama, parallel=4, **EXACT) as backend:
        alone = [await answer(backend, prompt) for prompt in prompts]
        beside = await asyncio.gather(*(answer(backend, prompt) for prompt in prompts))
    async with loaded(llama, parallel=1, **EXACT) as backend:
        backwards = [await answer(backend, prompt) for prompt in reversed(prompts)]
    assert beside == alone == backwards[::-1]
    assert len(set(alone)) > 1


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (Sampling(logit_bias=((10**7, 1.0),)), "there is no token 10000000"),
        (Sampling(logit_bias=((1, 101.0),)), "logit_bias of 1 must be between -100.0 and 100.0"),
        (Sampling(samplers=("top_k", "magic")), "'magic' does not exist; use dry, top_n_sigma"),
        (Sampling(samplers=("top_k", "top_k")), "at most once"),
        (Sampling(logprobs=21), "logprobs must be between 0 and 20, got 21"),
        (Sampling(mirostat=3), "mirostat must be between 0 and 2, got 3"),
        (Sampling(dry_sequence_breakers=("x" * 41,)), "1 to 40 bytes"),
    ],
)
async def test_what_is_wrong_is_refused_by_name(
    sampling: Sampling, message: str, backend: LlamaCppBackend
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await generate(backend, asking(conversation("Hello"), sampling))
    assert backend.running == 0

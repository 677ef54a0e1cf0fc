"""A memory that can copy whole sequences only: a part of one would end the process."""

from pathlib import Path

from shepherd.session import Session
from tests.backends.llamacpp.support import conversation, generate, loaded

BEGINNING = "hello the in " * 8


async def test_prompts_with_a_shared_beginning_are_answered_as_they_are_alone(
    deepseek4: Path,
) -> None:
    texts = (BEGINNING, f"{BEGINNING} more", f"{BEGINNING[:-8]}x", f"{BEGINNING} end")
    sessions: list[Session] = [conversation(text) for text in texts]
    alone: list[str] = []
    for session in sessions:
        async with loaded(deepseek4, parallel=1) as backend:
            alone.append((await generate(backend, session, max_tokens=8)).message.content)
    async with loaded(deepseek4, parallel=4) as backend:
        together = [await generate(backend, session, max_tokens=8) for session in sessions]
    assert [answer.message.content for answer in together] == alone
    assert any(answer.stats.cached_tokens for answer in together)

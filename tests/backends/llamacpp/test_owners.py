"""What one key wrote makes no other key's prompt quicker, in memory, host memory or on disk."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.cache.prefixes import Owner, Query, common_prefix, packed
from shepherd.backends.tenant import Tenant, serving_tenant
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.llamacpp.support import LIST, PUP, Recorder, loaded

ANN, BEN = Tenant("ann"), Tenant("ben")
SYSTEM = " ".join(f"Rule {n}: be kind to {n} sheep." for n in range(20))
TOKENS = st.lists(st.integers(0, 2), max_size=12).map(packed)


@given(TOKENS, TOKENS, st.integers(0, 12), st.integers(0, 12), st.sampled_from("ab"))
def test_others_see_a_whole_head_or_nothing(
    a: list[int], b: list[int], of_a: int, of_b: int, name: str
) -> None:
    held, asked = Owner("a", of_a), Query(packed(b), Owner(name, of_b))
    usable = common_prefix(a, asked.part_for(a, held)[:-1])
    common = common_prefix(a, packed(b[:-1]))
    if name == "a":
        assert usable == common
    elif usable:
        assert usable == min(of_a, len(b) - 1)
        assert of_a == of_b
        assert list(a[:of_a]) == list(b[:of_a])


async def cached(backend: LlamaCppBackend, tenant: Tenant, system: str, *texts: str) -> int:
    """How many tokens of a conversation's prompt the tenant does not have to read."""
    session = Session(system, tools=[LIST])
    for number, text in enumerate(texts):
        session.add(Message.assistant(text) if number % 2 else Message.user(text))
    with serving_tenant(tenant):
        async with await backend.prefill_session(session, Recorder()) as handle:
            return handle.stats().cached_tokens


SECRET = "My secret is " + " ".join(random.Random(1).choices("abcdefgh", k=80))


@pytest.mark.parametrize("parallel", [1, 4])
async def test_a_conversation_is_its_owners_and_a_whole_system_message_everybodys(
    tmp_path: Path, parallel: int
) -> None:
    again = 0
    for start in ("memory", "disk"):
        async with loaded(PUP, parallel=parallel, cache=tmp_path) as backend:
            if start == "memory":
                assert await cached(backend, ANN, SYSTEM, SECRET) == 0
                again = await cached(backend, ANN, SYSTEM, SECRET)
                assert again > 150
            for number, secret in enumerate((SECRET, SECRET[:60], SECRET + " And yours?")):
                other = Tenant(f"{start} {number}")
                head = await cached(backend, other, SYSTEM, secret)
                assert head == await cached(backend, Tenant(f"new {number}"), SYSTEM, "Hello")
                assert 0 < head < again - 60
                # what one has written is one's own from now on
                assert await cached(backend, other, SYSTEM, secret) > head
            assert await cached(backend, ANN, SYSTEM, SECRET) == again


async def test_a_part_of_a_system_message_tells_nothing() -> None:
    async with loaded(PUP, parallel=2) as backend:
        await cached(backend, ANN, SYSTEM, "Hello")
        assert await cached(backend, BEN, SYSTEM[:-30], "Hello") == 0
        assert await cached(backend, Tenant("cleo"), SYSTEM + " More.", "Hello") == 0
        assert await cached(backend, ANN, SYSTEM[:-30], "Hello") > 50


async def test_nothing_is_shared_if_the_server_says_so() -> None:
    ann, ben = (replace(tenant, shares_prompts=False) for tenant in (ANN, BEN))
    async with loaded(PUP, parallel=2) as backend:
        await cached(backend, ann, SYSTEM, "Hello")
        assert await cached(backend, ben, SYSTEM, "Hello") == 0
        assert await cached(backend, ann, SYSTEM, "Hello") > 50


async def test_a_prompt_without_a_template_is_its_owners() -> None:
    from shepherd.session import RawPrompt

    async with loaded(PUP, parallel=2) as backend:
        for tenant, expected in ((ANN, False), (BEN, False), (ANN, True)):
            with serving_tenant(tenant):
                raw = Session(raw_prompt=RawPrompt((SECRET,)))
                async with await backend.prefill_session(raw, Recorder()) as handle:
                    assert (handle.stats().cached_tokens > 0) is expected

"""What `/context` says of the counts and of the cache."""

import pytest

from shepherd.backends.base import CacheTier
from shepherd.conversation.context_use import cache_rows, context_rows, measure_context
from shepherd.messages import Message
from shepherd.session import Session
from tests.turn.guessing import Guessing


@pytest.mark.parametrize(("usages", "said"), [([], "estimated"), ([200] * 10, "estimated, ±")])
async def test_estimates_are_called_so_with_their_error(usages: list[int], said: str) -> None:
    session = Session("Be brief.", [Message.user("hello")])
    backend = Guessing(4096, 0.3, "exact", lambda _: Message.assistant("yes"))
    for usage in usages:
        backend.estimator.learn(session, usage)
    rows = dict(context_rows(await measure_context(session, backend)))
    assert rows["counts"].startswith(said)
    assert rows["counts"].endswith("%") == bool(usages)


def test_each_tier_has_a_row() -> None:
    tiers = (CacheTier("memory", 1, 1_500_000, 12, 3456, 0), CacheTier("disk", 2, 0, 0, 0, 7))
    rows = dict(cache_rows(tiers))
    assert rows["cache, memory"] == "1 kept, 1.5 MB; 12 hits saved 3,456 tokens; 0 evicted"
    assert rows["cache, disk"].endswith("7 evicted")
    assert cache_rows(()) == []

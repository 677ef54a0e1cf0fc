"""What `/context` says of the cache."""

from shepherd.backends.base import CacheTier
from shepherd.cli.repl.context_view import cache_rows


def test_each_tier_has_a_row() -> None:
    tiers = (CacheTier("memory", 1, 1_500_000, 12, 3456, 0), CacheTier("disk", 2, 0, 0, 0, 7))
    rows = dict(cache_rows(tiers))
    assert rows["cache, memory"] == "1 kept, 1.5 MB; 12 hits saved 3,456 tokens; 0 evicted"
    assert rows["cache, disk"].endswith("7 evicted")
    assert cache_rows(()) == []

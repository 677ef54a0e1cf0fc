"""Tables of the measurements."""

import statistics
from collections.abc import Callable, Sequence

from bench.backends.measure import EACH, FIRST, FRESH, TEXT, TOOLS, Rounds, Sizes, chunks_of
from bench.backends.worker import OURS, SDK, Result
from bench.table import markdown, ratio

SIDES = (OURS, SDK)


def processor_table(results: dict[str, Rounds], sizes: Sizes) -> str:
    """Processor time for 1,000 chunks."""
    rows: list[tuple[str, ...]] = []
    for adapter, rounds in results.items():
        for name in (TEXT, EACH, TOOLS):
            thousands = chunks_of(adapter, sizes.tasks(adapter)[name]) / 1000
            ours, theirs = (
                statistics.median(result.cpu / thousands for result in rounds[name][side])
                for side in SIDES
            )
            cells = (f"{ours * 1000:.1f} ms", f"{theirs * 1000:.1f} ms", ratio(ours, theirs))
            rows.append((adapter, name, *cells))
    header = ("API", "answer", "Shepherd", "SDK", "ratio")
    return markdown(header, rows)


def latency_table(results: dict[str, Rounds]) -> str:
    """Time added to the first token and to each chunk, medians of the rounds."""
    rows: list[tuple[str, ...]] = []
    for adapter, rounds in results.items():
        for what, name, values in (
            ("first token", FIRST, _first),
            ("first token of a new client", FRESH, _first),
            ("each further chunk", EACH, _chunks),
        ):
            cells = (_cells(rounds[name], values, share) for share in (50, 95))
            rows.append((adapter, what, *(cell for group in cells for cell in group)))
    header = ("API", "added to", "Shepherd", "SDK", "ratio", "Shepherd, p95", "SDK, p95", "ratio")
    return markdown(header, rows)


def _cells(
    results: dict[str, list[Result]], values: Callable[[Result], Sequence[int]], share: int
) -> tuple[str, str, str]:
    ours, theirs = (
        statistics.median(_percentile(values(result), share) for result in results[side])
        for side in SIDES
    )
    return _milliseconds(ours), _milliseconds(theirs), ratio(ours, theirs)


def _first(result: Result) -> Sequence[int]:
    return result.first


def _chunks(result: Result) -> Sequence[int]:
    return result.chunks


def _percentile(values: Sequence[int], share: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)]


def _milliseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.2f} ms"

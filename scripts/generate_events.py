"""Writes docs/reference/events.md from the definitions of the events."""

from shepherd.backends.base import GenerationStats
from shepherd.events import CallbackEvent, FinishReason, Topic

PAGE = "events.md"


def render() -> str:
    """The page as Markdown."""
    table = (CallbackEvent.__doc__ or "").split("===\n")[1:3]
    rows = "\n".join(line.strip() for line in _rows(table[1]))
    topics = ", ".join(f"`{t}`" for t in Topic)
    reasons = ", ".join(f"`{r}`" for r in FinishReason)
    stats = ", ".join(f"`{name}`" for name in GenerationStats.__dataclass_fields__)
    return f"""# Events

Generated from `shepherd/events.py`; do not edit.

| kind | content | name | id |
|---|---|---|---|
{rows}

Topics of SYSTEM events: {topics}.

Finish reasons: {reasons}.

Fields of STATS: {stats} (tokens and seconds), and `prefill_speed`, `decode_speed` (tokens per
second).

Within one generation: text events, STATS, STOP, then one TOOL_CALL per call. Once a callback has
returned False, the sender sends no more.
"""


def _rows(block: str) -> list[str]:
    rows: list[list[str]] = []
    for line in block.splitlines():
        cells = [line[4:17].strip(), line[17:45].strip(), line[45:66].strip(), line[66:].strip()]
        if set(line.strip()) <= {"=", " "}:
            continue
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [f"{a} {b}".strip() for a, b in zip(rows[-1], cells, strict=True)]
    return [f"| {' | '.join(cells)} |" for cells in rows]

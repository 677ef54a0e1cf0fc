"""Writes docs/reference/events.md from the definitions of the events."""

from inspect import getdoc

from msgspec.structs import fields

from shepherd.events import KINDS, MEASURES, Event, FinishReason, Topic

PAGE = "events.md"


def render() -> str:
    """The page as Markdown."""
    rows = "\n".join(_row(event) for event in KINDS)
    topics = ", ".join(f"`{t}`" for t in Topic)
    reasons = ", ".join(f"`{r}`" for r in FinishReason)
    stats = ", ".join(f"`{name}`" for name in MEASURES)
    return f"""# Events

Generated from `shepherd/events.py`; do not edit.

A callback takes one event. Each is a class of `shepherd.events`, but `ToolCall` is one of
`shepherd.messages`.

| kind | class | what it is | fields |
|---|---|---|---|
{rows}

Topics of SYSTEM events: {topics}.

Finish reasons: {reasons}.

Measures of STATS: {stats} (tokens and seconds), and `prefill_speed`, `decode_speed` (tokens per
second).

Within one generation: text events, STATS, STOP, then one TOOL_CALL per call. Once a callback has
returned False, the sender sends no more.
"""


def _row(event: type[Event]) -> str:
    summary = (getdoc(event) or "").partition("\n\n")[0].replace("\n", " ")
    names = [f.name for f in fields(event)]
    shown = [name for name in names if name not in MEASURES]
    measures = ["the measures below"] if shown != names else []
    cells = ", ".join([*measures, *(f"`{name}`" for name in shown)])
    return f"| {KINDS[event].name} | `{event.__name__}` | {summary} | {cells} |"

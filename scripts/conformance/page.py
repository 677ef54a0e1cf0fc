"""The page of all verdicts; what was not run again keeps its former lines."""

import re
from collections.abc import Mapping, Sequence

from scripts.conformance.verdict import Skipped, Verdict

Outcome = Sequence[Verdict] | Skipped

_HEAD = """\
# Conformance

Others wrote judges for the protocols that Shepherd speaks. This page is what they say of it, with
the built-in model. Use it to see how far you can rely on a protocol. `make conformance` runs all
judges and writes this page; `make conformance JUDGES="NAME"` runs those of the first column.

Judges and their packages are installed in `~/.cache/shepherd-conformance`. A judge that is a
repository is cloned there from GitHub, unless the folder exists. Nothing of it is in Shepherd's.

| Name | Judge | Version | Passed of applicable | What is not applicable, and why |
|---|---|---|---|---|
"""
_PARTS = {
    "rows": "",
    "failures": "\n## What fails\n\n",
    "details": "\n## Part by part\n\n",
    "skips": "\n## What was not run the last time\n\n",
}
_KINDS = {" |": "rows", ",": "failures", ".": "details", ":": "skips"}
_LINE = re.compile(r"(\||-) `([\w-]+)`(,|:| \||\.)")


def render(outcomes: Mapping[str, Outcome], names: Sequence[str], former: str) -> str:
    """The page with new outcomes, in the order of `names`; `former` is the page before."""
    page = _HEAD
    for kind, title in _PARTS.items():
        lines = [line for name in names for line in _lines(kind, name, outcomes.get(name), former)]
        if lines:
            page += title + "\n".join(lines) + "\n"
    return page


def _lines(kind: str, name: str, outcome: Outcome | None, former: str) -> list[str]:
    """The lines of one judge in one part of the page."""
    if isinstance(outcome, Skipped):
        if kind == "skips":
            return [f"- `{name}`: {_plain(str(outcome))}."]
    elif outcome is not None:
        if kind == "rows":
            return [_row(name, verdict) for verdict in outcome]
        if kind == "failures":
            return [f"- `{name}`, {_plain(f'{v.judge}: {t}')}" for v in outcome for t in v.failures]
        if kind == "details":
            return [f"- `{name}`. {_plain(text)}" for v in outcome for text in v.details]
        return []
    matches = ((line, _LINE.match(line)) for line in former.split("\n"))
    return [
        line for line, match in matches if match and match[2] == name and _KINDS[match[3]] == kind
    ]


def _row(name: str, verdict: Verdict) -> str:
    count = f"{verdict.passed:,} of {verdict.applicable:,}"
    cells = (f"`{name}`", verdict.judge, verdict.version, count, "; ".join(verdict.left_out))
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """One line that does not end a cell."""
    return " ".join(text.split()).replace("|", "\\|")

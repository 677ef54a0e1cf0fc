"""Writes docs/reference/json.md from the inputs and outputs of a JSON lines conversation."""

import inspect

from shepherd.cli.batch.protocol import INPUT_TYPES, OUTPUT_TYPES

PAGE = "json.md"

INTRODUCTION = """\
Generated from `shepherd/cli/batch/`; do not edit.

[The command line](../cli.md#json-lines) describes `shepherd --json`. Each line is an object with a
`type`."""


def render() -> str:
    """The page as Markdown."""
    inputs = [
        f"| `{name}` | {' '.join((inspect.getdoc(kind) or '').split())} |"
        for name, kind in INPUT_TYPES.items()
    ]
    outputs = [f"| `{name}` | {fields} |" for name, fields in OUTPUT_TYPES.items()]
    return "\n".join(
        [
            "# JSON lines",
            "",
            INTRODUCTION,
            "",
            "## Input",
            "",
            "| type | |",
            "|---|---|",
            *inputs,
            "",
            "## Output",
            "",
            "| type | fields |",
            "|---|---|",
            *outputs,
        ]
    )

"""Tools that OpenAI defines and clients run, and their items."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from shepherd.json_text import as_object, as_objects
from shepherd.messages import JsonObject, ToolCall


class DefinedTool(Struct, frozen=True):
    """A tool that OpenAI defines and clients run: what a model reads, and how an item writes it.

    The arguments stand in the `field` of a call, with the `defaults` of those that are missing.
    """

    description: str
    properties: JsonObject
    required: list[str]
    field: str = "action"
    defaults: JsonObject = {}

    def item(self, call: ToolCall) -> JsonObject:
        """The fields of a call as the model has made it."""
        missing = {k: v for k, v in self.defaults.items() if k not in call.arguments}
        return {self.field: call.arguments | missing}

    def arguments(self, item: JsonObject) -> JsonObject:
        """The arguments of a call in the history, as the model has written them."""
        sent: Any = item.get(self.field)
        values = as_object(sent)
        return {k: v for k, v in values.items() if k in self.properties and v is not None}


_TEXTS: JsonObject = {"type": "array", "items": {"type": "string"}}
_WHOLE: JsonObject = {"type": "integer"}
DEFINED: Mapping[str, DefinedTool] = {
    "local_shell": DefinedTool(
        "Run a program on the user's machine: its name and its arguments, without a shell.",
        {"command": _TEXTS, "timeout_ms": _WHOLE, "working_directory": {"type": "string"}},
        ["command"],
        defaults={"type": "exec", "command": [], "env": {}},
    ),
    "shell": DefinedTool(
        "Run command lines in a shell on the user's machine, at the same time.",
        {"commands": _TEXTS, "timeout_ms": _WHOLE, "max_output_length": _WHOLE},
        ["commands"],
        defaults={"commands": [], "timeout_ms": None, "max_output_length": None},
    ),
    "apply_patch": DefinedTool(
        "Create, change or delete a file. Each line of diff begins with a space, + or -, all of "
        "them with + in a new file. Changes stand below a line @@, with unchanged lines around.",
        {
            "type": {"enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string"},
            "diff": {"type": "string"},
        },
        ["type", "path"],
        field="operation",
    ),
}
"""These tools by their types."""


def result_text(output: object) -> object:
    """The outcomes of a shell's commands as one text; any other output stays as it is."""
    outcomes = as_objects(output)
    if not any("outcome" in outcome for outcome in outcomes):
        return output
    return "\n".join(map(_outcome, outcomes))


def _outcome(fields: JsonObject) -> str:
    """What one command has written, and how it ended."""
    end: Any = fields.get("outcome")
    code = cast(JsonObject, end).get("exit_code") if isinstance(end, dict) else None
    last = "It ran out of time." if code is None else f"Exit code {code}."
    texts = (fields.get("stdout"), fields.get("stderr"), last)
    return "\n".join(text for text in texts if isinstance(text, str) and text)

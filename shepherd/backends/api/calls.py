"""Turns the pieces of native tool calls into calls that may be run."""

import json
from collections.abc import Collection, Sequence
from typing import Any, cast

from msgspec import Struct, field

from shepherd.backends.api import stream
from shepherd.backends.api.history import replace_surrogates, sanitize_object
from shepherd.backends.output.catalog import ToolCatalog, misfits, problem_of_arguments
from shepherd.backends.output.filter import new_call_id
from shepherd.backends.output.repair import loads, repair_json
from shepherd.json_text import strict_json, too_deep
from shepherd.messages import JsonObject, ToolCall, ToolSpec

MAX_NAMES = 40
"""Names of tools in a message to the model."""


class CollectedCalls(Struct, frozen=True):
    """The collected calls; `rejected` are the others as text, and `problems` the reasons.

    `cut` names the tools whose calls were not complete when the answer ended.
    """

    calls: tuple[ToolCall, ...] = ()
    rejected: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()


class _PartialCall(Struct):
    """What has arrived of one call; `arguments` are pieces of JSON, or whole objects."""

    id: str = ""
    name: str = ""
    arguments: list[str | JsonObject] = field(default_factory=list[str | JsonObject])
    extra: JsonObject | None = None


class CallCollector:
    """Collects one answer's calls."""

    def __init__(self) -> None:
        self._calls: dict[int | str, _PartialCall] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, delta: stream.Call) -> None:
        """Add a piece to the call with its key; the first id and name count."""
        call = self._calls.setdefault(delta.key, _PartialCall())
        call.id = call.id or delta.id
        call.name = call.name or delta.name
        if delta.arguments != "":  # an empty object counts: the call has no arguments
            call.arguments.append(delta.arguments)
        if delta.extra:
            call.extra = (call.extra or {}) | delta.extra

    def finish(
        self,
        adapter: str,
        tools: Sequence[ToolSpec],
        used_ids: Collection[str],
        *,
        truncated: bool,
    ) -> CollectedCalls:
        """The calls with unique ids, none of which is in `used_ids`.

        `truncated`: the answer was cut off, so only complete and valid arguments make a call.
        """
        catalog = ToolCatalog(tools)
        ids = set(used_ids)
        calls: list[ToolCall] = []
        rejected: list[str] = []
        problems: list[str] = []
        cut: list[str] = []
        for call in self._calls.values():
            text, arguments = _joined_arguments(call.arguments)
            call.id, call.name = replace_surrogates(call.id), replace_surrogates(call.name)
            name = catalog.known(call.name) or call.name
            if arguments is None:
                arguments = _parsed_arguments(name, text, catalog, truncated=truncated)
            # without tools on offer, nothing is a call: its text is shown
            if arguments is None or not name or not tools:
                rejected.append(as_text(call.name, text, whole=not truncated))
                if truncated:
                    cut.append(call.name)
                elif tools:
                    problems.append(_problem(call.name, text, catalog))
                continue
            call_id = call.id if call.id and call.id not in ids else new_call_id()
            ids.add(call_id)
            extra = {adapter: sanitize_object(call.extra)} if call.extra else {}
            calls.append(ToolCall(call_id, name, arguments, extra))
        return CollectedCalls(tuple(calls), tuple(rejected), tuple(problems), tuple(cut))


def as_text(name: str, arguments: str, *, whole: bool = True) -> str:
    """A call that is not to be run, in the text format that most models use.

    Without `whole` its end is left out too, so that a reader sees that it was cut off.
    """
    end = "}</tool_call>" if whole else ""
    named = json.dumps(name, ensure_ascii=False)
    return f'<tool_call>{{"name": {named}, "arguments": {arguments or "{}"}{end}'


def _joined_arguments(pieces: Sequence[str | JsonObject]) -> tuple[str, JsonObject | None]:
    """The arguments as JSON text, and as the object if a valid one arrived."""
    if len(pieces) == 1 and not isinstance(value := pieces[0], str):  # the API sends objects
        try:
            return strict_json(value), value
        except ValueError:  # a number or surrogate that JSON does not allow
            pass
    texts = (p if isinstance(p, str) else json.dumps(p, ensure_ascii=False) for p in pieces)
    return replace_surrogates("".join(texts)), None


def _parsed_arguments(
    name: str, text: str, catalog: ToolCatalog, *, truncated: bool
) -> JsonObject | None:
    """The arguments, None if they can't be parsed; repaired ones must match the tool's schema.

    Those of a `truncated` answer are not repaired: what is missing can't be guessed.
    """
    if not text.strip():  # a call without arguments, or one whose arguments had not begun
        return None if truncated else {}
    try:
        return _object(loads(text), text)
    except (ValueError, RecursionError):
        pass
    if truncated:
        return None
    try:
        repaired = _object(repair_json(text), text)
    except (ValueError, RecursionError):
        return None
    if repaired is None or name not in catalog.names:
        return None
    return None if misfits(repaired, catalog.parameters[name]) else repaired


def _object(value: Any, text: str) -> JsonObject | None:
    """The object in `text`, if it can be written again.

    Some servers wrap its JSON in a text, or send null for no arguments.
    """
    if value is None:
        return {}
    if isinstance(value, str):
        value = loads(value)
    if not isinstance(value, dict) or too_deep(text, value):
        return None
    return sanitize_object(cast(JsonObject, value))


def _problem(name: str, text: str, catalog: ToolCatalog) -> str:
    """Why the call of `name` with the arguments `text` is rejected, for the model to read."""
    if not name:
        return f"A call names no tool; the tools are {', '.join(catalog.names[:MAX_NAMES])}."
    problem = problem_of_arguments(name, text, catalog)
    return problem or f"The arguments of {name} are not a JSON object."

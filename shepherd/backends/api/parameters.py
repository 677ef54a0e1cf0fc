"""What a request says of a model's settings: sampling, effort, and the schemas of tools."""

from collections.abc import Collection, Mapping
from typing import Any, cast

from msgspec.structs import replace

from shepherd.backends.api.adapter import ModelTraits
from shepherd.config.section import Effort
from shepherd.errors import InvalidRequestError
from shepherd.json_text import as_object, referenced
from shepherd.messages import JsonObject, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import Session

_NEEDED = ("logit_bias", "ignore_eos", "logprobs")
"""A request depends on these; the others only shape the answer."""


def named(*same: str, **others: str) -> Mapping[str, str]:
    """An API's names for our parameters, of which some are the same."""
    return {name: name for name in same} | others


def sampling_parameters(
    sampling: Sampling, names: Mapping[str, str], api: str, elsewhere: Collection[str] = ()
) -> JsonObject:
    """The parameters that are set and that the API has, under its `names` for them.

    Settings for other models are left out. Raises InvalidRequestError if that would change the
    requested answer, except for parameters that the caller sends `elsewhere`.
    """
    for needed in _NEEDED:
        value = getattr(sampling, needed)
        is_sent = needed in names or needed in elsewhere
        is_unset = value is None or value is False or value == ()
        if not (is_sent or is_unset):
            message = f"{api} has no {needed}; leave it out for this provider"
            raise InvalidRequestError(message, needed)
    result: JsonObject = {}
    for ours, theirs in names.items():
        value = getattr(sampling, ours)
        if value is not None and value != ():
            result[theirs] = [*value] if ours == "stop" else value
    return result


LIMIT_PARAMETERS = ("max_tokens", "max_completion_tokens")
"""The names of the output limit in chat completions."""

OPTIONAL_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "topP": "top_p",
    "top_k": "top_k",
    "topK": "top_k",
    "frequency_penalty": "penalty_freq",
    "frequencyPenalty": "penalty_freq",
    "presence_penalty": "penalty_present",
    "presencePenalty": "penalty_present",
}
"""Parameters that a request can drop without changing its meaning, by their fields.

Of two that exclude each other, the first one stays.
"""


def without_refused(sampling: Sampling, refused: Collection[str]) -> Sampling:
    """The parameters without those that the provider has refused."""
    names = {OPTIONAL_FIELDS[field] for field in refused if field in OPTIONAL_FIELDS}
    return replace(sampling, **dict.fromkeys(names)) if names else sampling


NONE = Effort.NONE
EFFORTS = tuple(effort for effort in Effort if effort)
"""The lowest first; not every API has all of them."""

BUDGETS = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 24_576, "xhigh": 32_000}
"""In tokens, for models that take a number."""


def thinks(session: Session, model: ModelTraits) -> bool:
    """Whether the model should think: by the provider's effort, else by the session."""
    return model.effort != NONE if model.effort else session.thinking


def nearest(effort: str, known: tuple[str, ...]) -> str:
    """The `known` effort that is nearest to this one, the lower of two."""
    place = EFFORTS.index(effort)
    return min(known, key=lambda other: abs(EFFORTS.index(other) - place))


_HOLDERS = ("$defs", "definitions")
_NAMED = ("properties", "patternProperties", "dependentSchemas")


def without_references(schema: JsonObject) -> JsonObject:
    """`schema` with its `#/…` references replaced by their targets.

    If a schema contains itself, the inner one keeps only its type and description.
    """
    whole = cast(JsonObject, _inlined(schema, schema, ()))
    return {key: value for key, value in whole.items() if key not in _HOLDERS}


def _inlined(node: Any, root: JsonObject, within: tuple[str, ...]) -> Any:
    """A part of the schema `root` without references.

    `within` are the references that led here; one that comes again would have no end.
    """
    if isinstance(node, list):
        return [_inlined(item, root, within) for item in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    schema = cast(JsonObject, node)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _followed(reference, schema, root, within)
    result: JsonObject = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):  # its keys are names, "$ref" may be one
            parts = cast(JsonObject, value)
            result[key] = {name: _inlined(part, root, within) for name, part in parts.items()}
        elif key in ("enum", "const", "default", "examples"):  # values, not schemas
            result[key] = value
        elif key not in _HOLDERS:
            nested = isinstance(value, (dict, list))
            result[key] = _inlined(value, root, within) if nested else value
    return result


def _followed(
    reference: str, schema: JsonObject, root: JsonObject, within: tuple[str, ...]
) -> JsonObject:
    """The target of a schema's `reference`, with what else stands in the schema."""
    others = {k: v for k, v in schema.items() if k != "$ref" and k not in _HOLDERS}
    target = as_object(referenced(root, reference))
    if reference in within:
        target = {k: v for k, v in target.items() if k in ("type", "description")}
    inlined = _inlined(target, root, (*within, reference))
    return inlined | cast(JsonObject, _inlined(others, root, within))


def declaration(tool: ToolSpec, field: str, schema: JsonObject | None) -> JsonObject:
    """A function's declaration: name, description, and its parameters' `schema` in `field`."""
    result: JsonObject = {"name": tool.name, "description": tool.description}
    return result if schema is None else result | {field: schema}

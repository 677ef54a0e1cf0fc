"""Fields and limits of requests that several APIs share, and fields that none serves.

A known field that would change an answer and is not served is refused by its name, never ignored.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar, cast

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from shepherd.messages import JsonObject
from shepherd.sampling import PARAMETERS
from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid, unsupported
from shepherd.session import OutputFormat

T = TypeVar("T")
MAX_MESSAGES = 10_000
MAX_TOOLS = 1000

MANY_MESSAGES = 500
"""More are translated beside the event loop."""

MAX_TOKENS = 2**31 - 1
"""Larger limits of an answer mean this one."""


def few_messages(value: object) -> object:
    """A field's value; raises ValueError for a list with too many messages."""
    if isinstance(value, list) and len(cast(list[object], value)) > MAX_MESSAGES:
        raise ValueError(f"must be at most {MAX_MESSAGES:,} messages")
    return cast(object, value)


def list_or_empty(value: object) -> object:
    """A field's value; null is an empty list."""
    return [] if value is None else value


def no_boolean(value: object) -> object:
    """A field's value; raises ValueError for true and false, which pydantic takes as numbers."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


ListOrNull: TypeAlias = Annotated[list[T], Field(fail_fast=True), BeforeValidator(list_or_empty)]
Tools: TypeAlias = Annotated[
    list[T], Field(max_length=MAX_TOOLS, fail_fast=True), BeforeValidator(list_or_empty)
]
Integer: TypeAlias = Annotated[int | None, BeforeValidator(no_boolean)]
NotServed: TypeAlias = Annotated[Any, Field(description="Not served.")]
Events: TypeAlias = Annotated[bool | None, Field(description="Answer in server-sent events.")]
ModelName: TypeAlias = Annotated[
    str | None,
    Field(description="A model on offer, which answers under this name; without it the default."),
]


class StreamOptions(RequestModel):
    """Extra parts of a stream."""

    include_usage: bool | None = None
    """One last chunk, without choices, with the usage."""


class GrammarFields(RequestModel):
    """The format of an answer, as llama.cpp's clients ask for it."""

    grammar: str | None = None
    """A grammar in llama.cpp's GBNF that the answer fits."""
    json_schema: Any = None
    """A JSON schema that the answer fits, as llama.cpp takes it."""

    def plain_format(self) -> OutputFormat | None:
        """The format, None for free text; raises ApiError."""
        schema: object = self.json_schema
        if schema is None:
            return OutputFormat(grammar=self.grammar) if self.grammar else None
        if self.grammar:
            raise invalid("json_schema", "not with a grammar")
        if not isinstance(schema, dict):
            raise invalid("json_schema", "must be an object")
        return OutputFormat(cast(JsonObject, schema))


_NEUTRAL: tuple[Any, ...] = (None, False, 0, "", [], {})
"""Values that leave an answer as it is."""

_FORMAT = "Use response_format, json_schema or grammar."
_CONTROLS: dict[str, str] = {
    "guided_json": _FORMAT,
    "guided_regex": _FORMAT,
    "guided_choice": _FORMAT,
    "guided_grammar": _FORMAT,
    "structured_outputs": _FORMAT,
    "min_tokens": "Use ignore_eos with max_tokens.",
    "stop_token_ids": "Use stop.",
    "bad_words": "Use logit_bias.",
    "allowed_token_ids": "Use logit_bias or grammar.",
    "include_stop_str_in_output": "A stop string is never part of the answer.",
    "use_beam_search": "There is no beam search.",
    "truncate_prompt_tokens": "Prompts are never shortened.",
    "prompt_logprobs": "Log probabilities of the prompt are not computed.",
    "post_sampling_probs": "Probabilities are the model's own, before the samplers.",
    "n_indent": "Indentation is not enforced.",
    "lora": "Adapters are chosen when the model is loaded.",
    "image_data": "Images come in messages.",
    "multimodal_data": "Images come in messages.",
}
_LIMITS: dict[str, str] = {
    "t_max_predict_ms": "Use max_tokens.",
    "adaptive_target": "There is no adaptive sampling; use mirostat.",
}
"""Fields that a negative number turns off."""

_NAMES = """
samplers stop stop_sequences dry_sequence_breakers logit_bias ignore_eos top_logprobs n_probs n
n_cmpl best_of max_tokens max_completion_tokens max_output_tokens n_predict num_predict grammar
json_schema response_format format output_config system instructions suffix echo input_prefix
input_suffix raw think reasoning_effort chat_template_kwargs continue_final_message tools
tool_choice functions function_call options generationConfig generation_config systemInstruction
system_instruction toolConfig tool_config
"""
CONTROLS = frozenset(_NAMES.split()).union(*(p.names for p in PARAMETERS.values()))
"""Names that control an answer in one of the APIs."""

_EMPTY: tuple[Any, ...] = ("", [], {})


def refuse_unsupported(fields: Mapping[str, Any], others: Mapping[str, str] | None = None) -> None:
    """Raise ApiError for a known field that is not served, of `others` too.

    A value that changes nothing is accepted.
    """
    for name, value in fields.items():
        reason = _CONTROLS.get(name) or _LIMITS.get(name) or (others or {}).get(name)
        if reason is None:
            continue
        off = name in _LIMITS and isinstance(value, int | float) and value <= 0
        if not (off or value in _NEUTRAL):
            raise unsupported(name, f"{name} is not supported. {reason}")


def check_fields(model: type[BaseModel], value: object) -> object:
    """A body as it is; raises ApiError for a field that `model` would ignore.

    For validators before a model's own; a value that is not an object is left to those.
    """
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        own = names_of(model)
        refuse_unsupported({name: value for name, value in fields.items() if name not in own})
        refuse_foreign(model, fields)
    return cast(object, value)


def refuse_foreign(model: type[BaseModel], fields: Mapping[str, Any]) -> None:
    """Raise ApiError for a control of another API that `model` does not have.

    A value that says nothing is accepted: null, false, and empty ones.
    """
    for name in sorted((fields.keys() & CONTROLS) - names_of(model)):
        value = fields[name]
        if not (value is None or value is False or value in _EMPTY):
            raise unsupported(name, f"{name} is not a parameter of this API.")


@cache
def names_of(model: type[BaseModel]) -> frozenset[str]:
    """All names under which a request may send the fields of a model."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias, field.alias]
        names |= {name, *(str(choice) for choice in choices if choice)}
    return frozenset(names)

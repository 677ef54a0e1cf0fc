"""Fields of requests that several APIs share, what they mean, and fields that none serves.

A known field that would change an answer and is not served is refused by its name, never ignored.
`where` is a field under an API's own name. Everything that refuses a request raises ApiError.
"""

import itertools
import logging
from collections.abc import Mapping, Sequence, Sized
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, cast

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    model_validator,
)
from pydantic.fields import FieldInfo

from shepherd import durations, messages, sampling, session
from shepherd.backends.base import ModelInfo
from shepherd.config.section import Effort
from shepherd.json_text import as_object
from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid, unsupported

logger = logging.getLogger(__name__)

T = TypeVar("T")
MAX_MESSAGES = 10_000
MAX_TOOLS = 1000

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


def without_empty(value: object) -> object:
    """A field's value; a list loses its empty strings, which several programs send for none."""
    if isinstance(value, list):
        return [item for item in cast(list[object], value) if item != ""]
    return value


@lru_cache(maxsize=256)  # a client sends the same value with each request
def _warn_of(value: str, nearest: str) -> None:
    logger.warning(
        "An option of a request has the unknown value %.64r; %s is served", value, nearest
    )


def as_nearest(nearest: str, *others: str) -> BeforeValidator:
    """For an option that only changes how something is shown: an unknown value is the nearest one.

    So newer clients work. An unknown value of an option that changes an answer is refused.
    """

    def known(value: object) -> object:
        if not isinstance(value, str) or value in (nearest, *others):
            return value
        _warn_of(value, nearest)
        return nearest

    return BeforeValidator(known)


def _seconds(value: object) -> float | None:
    """The seconds of a duration such as `5m`; raises ValueError."""
    return None if value is None else durations.parse_duration(value)


ListOrNull: TypeAlias = Annotated[list[T], Field(fail_fast=True), BeforeValidator(list_or_empty)]
Tools: TypeAlias = Annotated[
    list[T], Field(max_length=MAX_TOOLS, fail_fast=True), BeforeValidator(list_or_empty)
]
NUMBER = BeforeValidator(no_boolean)
"""For a field with a range it stands behind the range, which would refuse null otherwise."""

Seconds: TypeAlias = Annotated[
    float | None, PlainValidator(_seconds, json_schema_input_type=float | str | None)
]
Integer: TypeAlias = Annotated[int | None, NUMBER]
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


def wants_usage(options: StreamOptions | None) -> bool:
    """Whether a stream ends with the usage."""
    return options is not None and bool(options.include_usage)


class TelemetryFields(RequestModel):
    """What llama.cpp's clients are told while an answer is made."""

    return_progress: bool | None = None
    """A stream tells in `prompt_progress` how far the prompt is."""
    timings_per_token: bool | None = None
    """Each event of a stream has `timings`."""


class SlotField(RequestModel):
    """Where llama.cpp's clients find the conversation again."""

    id_slot: int | None = None
    """The slot of `/slots` that the conversation can be saved from; else it is slot 0."""

    @property
    def slot(self) -> int:
        """The slot; -1 is llama.cpp's word for any."""
        return max(self.id_slot or 0, 0)


class GrammarFields(RequestModel):
    """The format of an answer, as llama.cpp's clients ask for it."""

    grammar: str | None = None
    """A grammar in llama.cpp's GBNF that the answer fits."""
    json_schema: Any = None
    """A JSON schema that the answer fits, as llama.cpp takes it."""

    def plain_format(self) -> session.OutputFormat | None:
        """The format, None for free text; raises ApiError."""
        schema: object = self.json_schema
        if schema is None:
            return session.OutputFormat(grammar=self.grammar) if self.grammar else None
        if self.grammar:
            raise invalid("json_schema", "not with a grammar")
        if not isinstance(schema, dict):
            raise invalid("json_schema", "must be an object")
        return session.OutputFormat(cast(messages.JsonObject, schema))


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
    "post_sampling_probs": "Only /completion has probabilities after the samplers.",
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
CONTROLS = frozenset(_NAMES.split()).union(*(p.names for p in sampling.PARAMETERS.values()))
"""Names that control an answer in one of the APIs."""

_EMPTY: tuple[Any, ...] = (None, "", [], {})
_USUAL: Mapping[str, object] = {"tool_choice": "auto", "n": 1}
"""Controls with the value that they have without being sent."""

_LOADING = frozenset(
    (
        *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep"),
        *("use_mmap", "use_mlock", "numa", "low_vram"),
    )
)
"""Ollama's `options` that load a model: they change no answer here."""


def _says_nothing(name: str, value: object) -> bool:
    """Whether a control of another API asks for nothing."""
    if name == "options" and isinstance(value, dict):
        return _LOADING.issuperset(cast(messages.JsonObject, value))
    # the number 0, which equals False, says something: it is an unusual temperature
    return value is False or value in _EMPTY or (name in _USUAL and value == _USUAL[name])


class CheckedRequest(RequestModel):
    """A body that refuses known fields which are not served, unless their value changes nothing.

    `refused` are further fields, each with what to do instead.
    """

    refused: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, value: object) -> object:
        cls.refuse_unsupported(as_object(value))
        return value

    @classmethod
    def refuse_unsupported(cls, fields: messages.JsonObject) -> None:
        """Raise ApiError for a known field that is not served."""
        served = names_of(cls)
        for name, value in fields.items():
            # refused by this API, or by all that have no field of this name
            advice = cls.refused.get(name)
            if advice is None and name not in served:
                advice = _CONTROLS.get(name) or _LIMITS.get(name)
            is_off = name in _LIMITS and isinstance(value, int | float) and value <= 0
            changes_nothing = is_off or value in _NEUTRAL
            if advice is not None and not changes_nothing:
                raise unsupported(name, f"{name} is not supported. {advice}")


class OwnControls(CheckedRequest):
    """A body that also refuses the controls of other APIs, unless their value says nothing.

    `ignored` are those that the server ignores for which this one stands.
    """

    ignored: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, value: object) -> object:  # replaces that of CheckedRequest
        """The body; raises ApiError for a field that would say something in another API."""
        fields = as_object(value)
        cls.refuse_unsupported(fields)
        for name in sorted((fields.keys() & CONTROLS) - names_of(cls) - cls.ignored):
            if not _says_nothing(name, fields[name]):
                raise unsupported(name, f"{name} is not a parameter of this API.")
        return value


@cache
def names_of(model: type[BaseModel]) -> frozenset[str]:
    """All names under which a request may send the fields of a model."""
    fields = model.model_fields.items()
    return frozenset(itertools.chain(*(field_names(name, field) for name, field in fields)))


def field_names(name: str, field: FieldInfo) -> set[str]:
    """All names under which a request may send one field: its own and its aliases."""
    alias = field.validation_alias
    aliases = alias.choices if isinstance(alias, AliasChoices) else [alias, field.alias]
    return {name, *(str(alias) for alias in aliases if alias)}


def in_range(name: str) -> Any:
    """The limits of the sampling parameter `name` for a field."""
    parameter = sampling.PARAMETERS[name]
    return Field(ge=parameter.low, le=parameter.high)


def check_images(images: Sized, model: ModelInfo, where: str) -> None:
    """Refuse images that the model can't see."""
    if images and model.vision is False:
        reason = f"images are not supported: {model.id} reads text only; leave them out"
        raise invalid(where, reason)


def can_continue(conversation: Sequence[messages.Message], model: ModelInfo) -> bool:
    """Whether the assistant has the last word, and the model can go on with it; calls are whole."""
    last = conversation[-1] if conversation else None
    is_open = last is not None and last.role is messages.Role.ASSISTANT and not last.tool_calls
    return is_open and model.raw_prompts


def choice_count(requested: int | None, maximum: int, where: str) -> int:
    """How many answers are requested; 1 if the request does not say."""
    count = requested or 1
    if count > maximum:
        raise invalid(where, f"must be at most {maximum} here (server.max_choices), got {count}")
    return count


def logprob_count(
    *,
    requested: bool | None,
    top: int | None,
    where: str = "top_logprobs",
    switch: str = "logprobs",
) -> int | None:
    """How many of the likeliest tokens are reported, None for no log probabilities at all.

    `where` and `switch` are the API's names for `top` and `requested`.
    """
    if top and not requested:
        raise invalid(where, f"{switch} must be true with it")
    return (top or 0) if requested else None


def token_limit(requested: int | None, default: int) -> int:
    """The maximum of generated tokens; 0, or a negative one, is as many as fit."""
    limit = default if requested is None else requested
    return min(max(limit, 0), MAX_TOKENS)


def effort_named(name: str | None) -> str:
    """The effort of this name in any case; "" for `none` and for names that are unknown."""
    effort = (name or "").lower()
    if effort == "max":  # the highest level of Anthropic's and Ollama's APIs
        effort = Effort.XHIGH
    return effort if effort in set(Effort) - {Effort.NONE} else ""


def token_budget(requested: int | None) -> int | None:
    """The limit of reasoning in tokens; None, or a negative one, is no limit."""
    return None if requested is None or requested < 0 else requested

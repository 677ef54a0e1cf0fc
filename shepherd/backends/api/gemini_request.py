"""A session as the body of a generateContent request."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from shepherd.backends.api import adapter, history, parameters
from shepherd.errors import InvalidRequestError
from shepherd.images import Image
from shepherd.json_text import as_count, as_list, as_object, as_objects, as_text, as_texts
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session, ToolChoice

_VERSION = re.compile(r"gemini-(\d+)")
_SIGNATURES_SINCE = _LEVELS_SINCE = _NEWEST = 3
_LEVELS = ("low", "high")
_FLASH_LEVELS = ("minimal", "low", "medium", "high")


def model_path(model: str) -> str:
    """The model's resource name; tuned models have their own collection."""
    return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"


def generation(model: str) -> int:
    """The model's generation; aliases such as `gemini-flash-latest` mean the newest.

    0 for models of other families (Gemma) behind the same API.
    """
    name = model.rpartition("/")[2]
    if match := _VERSION.match(name):
        return int(match[1])
    return _NEWEST if name.startswith("gemini") else 0


def thinking_config(
    model: str, *, on: bool, effort: str = "", budget: int | None = None
) -> JsonObject:
    """`thinkingConfig` for a model that can think; `effort` is ours, "" for the model's choice.

    `budget` is the limit of thoughts in tokens, for models that take one.

    Models up to 2.5 take a budget in tokens; -1 is the model's own choice, and Pro needs at least
    128. Later models take levels: all have LOW and HIGH, and Flash has all levels. No model takes
    both.
    """
    config: JsonObject = {"includeThoughts": True} if on else {}
    version = generation(model)
    if version == 0:  # of another family: Gemma has neither budgets nor levels
        return config
    if version >= _LEVELS_SINCE:
        level = "high" if on else "low"
        if effort:
            level = parameters.nearest(effort, _FLASH_LEVELS if "flash" in model else _LEVELS)
        return config | {"thinkingLevel": level.upper()}
    minimum = 128 if "pro" in model else 0
    if not on:
        return config | {"thinkingBudget": minimum}
    if budget is None:
        return config | {"thinkingBudget": parameters.BUDGETS.get(effort, -1)}
    return config | {"thinkingBudget": max(minimum, budget)}


_KEPT = frozenset(
    {"type", "format", "title", "description", "required"}
    | {"minItems", "maxItems", "minimum", "maximum", "propertyOrdering"}
)
_SAY_NOTHING = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "default", "deprecated"}
    | {"example", "examples", "readOnly", "writeOnly", "nullable"}
)


def gemini_schema(schema: JsonObject) -> tuple[JsonObject, frozenset[str]]:
    """`schema` in Gemini's subset, and the constraints that the subset can't express.

    The API's reference lists the keywords at `responseJsonSchema`. The same limits apply to the
    parameters of functions in `parametersJsonSchema`.
    """
    lost: set[str] = set()
    return _cut(parameters.without_references(schema), lost), frozenset(lost)


def _cut(node: Any, lost: set[str]) -> JsonObject:
    """A schema without what Gemini lacks; the keywords that change its meaning go into `lost`."""
    if not isinstance(node, dict):
        if node is False:  # nothing fits it; `true` fits everything, as {} does
            lost.add("false")
        return {}
    merged = _merged(cast(JsonObject, node), lost)
    result: JsonObject = {}
    for key, value in merged.items():
        name = "anyOf" if key == "oneOf" else key
        if key in _KEPT:
            result[key] = value
        elif name in _PARTS:
            result[name] = _cut_inner(name, value, lost)
        elif key in ("enum", "const"):
            result |= _choices(as_list(value) if key == "enum" else [value], lost)
        elif key not in _SAY_NOTHING:
            lost.add(key)
    if merged.get("nullable") is True and isinstance(result.get("type"), str):  # as OpenAPI says
        result["type"] = [result["type"], "null"]
    return result


_PARTS = ("properties", "items", "additionalProperties", "prefixItems", "anyOf")
"""The keywords with schemas as their values."""


def _cut_inner(key: str, value: Any, lost: set[str]) -> Any:
    """The value of one of `_PARTS`, with its schemas cut."""
    if key == "properties":
        return {name: _cut(part, lost) for name, part in as_object(value).items()}
    if key in ("prefixItems", "anyOf"):
        return [_cut(part, lost) for part in as_list(value)]
    # `additionalProperties` may be a boolean, other schemas may not
    is_flag = key == "additionalProperties" and isinstance(value, bool)
    return value if is_flag else _cut(value, lost)


def _merged(schema: JsonObject, lost: set[str]) -> JsonObject:
    """The schema with the parts of its `allOf` merged; the outer one of two values wins."""
    whole = {key: value for key, value in schema.items() if key != "allOf"}
    for part in as_objects(schema.get("allOf")):
        for key, value in _merged(part, lost).items():
            if key == "properties":
                whole[key] = as_object(value) | as_object(whole.get(key))
            elif key == "required":
                both = [*as_texts(whole.get(key)), *as_texts(value)]
                whole[key] = list(dict.fromkeys(both))
            elif whole.setdefault(key, value) != value:
                lost.add("allOf")
    return whole


def _choices(values: list[Any], lost: set[str]) -> JsonObject:
    """`enum` with these values, which Gemini has for texts and numbers; null is part of the type.

    {} for other values, which any value may replace.
    """
    plain = [v for v in values if isinstance(v, str | int | float) and not isinstance(v, bool)]
    if plain and len(plain) + values.count(None) == len(values):
        return {"enum": plain}
    lost.add("enum")
    return {}


RULES = history.Rules(user_first=True, user_last=True, tool_name=r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")

API_NAME = "gemini"
"""The name under which `Message.extra` and `ToolCall.extra` keep Gemini's data."""

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""Replaces the signature of a call that Gemini did not make.

Documented for conversations of other models, among the questions at the end of
https://ai.google.dev/gemini-api/docs/thought-signatures; Google's own gemini-cli sends it too.
"""

_NAME_BEGINS = re.compile(r"[A-Za-z_]")


def to_contents(messages: Sequence[Message], model: str) -> list[JsonObject]:
    """The contents of a normalised conversation, for this model."""
    calls = {call.id: call for message in messages for call in message.tool_calls}
    # https://ai.google.dev/gemini-api/docs/thought-signatures
    signed = generation(model) >= _SIGNATURES_SINCE
    return [_content(turn, calls, signed=signed) for turn in history.turns(messages)]


def _content(turn: history.Turn, calls: Mapping[str, ToolCall], *, signed: bool) -> JsonObject:
    """One side's turn; `calls` are all by their ids. `signed`: calls need a signature."""
    if turn.role is Role.ASSISTANT:
        parts = [p for message in turn.messages for p in _model_parts(message, signed=signed)]
        return {"role": "model", "parts": parts}
    return {"role": "user", "parts": [p for m in turn.messages for p in _user_parts(m, calls)]}


def _user_parts(message: Message, calls: Mapping[str, ToolCall]) -> list[JsonObject]:
    """The parts of a message of the user or of a result."""
    if message.role is Role.TOOL:
        return [_result(message, calls)]
    texts: list[JsonObject] = [{"text": message.content}] if message.content else []
    return [*map(_image, message.images), *texts]


def _image(image: Image) -> JsonObject:
    return {"inlineData": {"mimeType": image.media_type, "data": image.base64}}


def _result(message: Message, calls: Mapping[str, ToolCall]) -> JsonObject:
    """A result goes back under its call's name, and under the id from Gemini."""
    call = calls[message.tool_call_id]
    response: JsonObject = {"name": _valid_name(call), "response": {"output": message.content}}
    return {"functionResponse": _id_field(call) | response}


def _model_parts(message: Message, *, signed: bool) -> Iterator[JsonObject]:
    """The text and the calls of an answer; `signed`: the API refuses calls without signature."""
    yield from _text_parts(message)
    for index, call in enumerate(message.tool_calls):
        named: JsonObject = {"name": _valid_name(call), "args": call.arguments}
        part: JsonObject = {"functionCall": _id_field(call) | named}
        if signature := as_text(_gemini_data(call.extra).get("thoughtSignature")):
            part["thoughtSignature"] = signature
        elif signed and index == 0:  # Gemini signs only the first of several calls in one answer
            part["thoughtSignature"] = SKIP_SIGNATURE
        yield part


def _text_parts(message: Message) -> Iterator[JsonObject]:
    """The text; parts that Gemini has signed keep their form and place."""
    text, written = message.content, 0  # `written`: the characters that the parts so far hold
    for start, part in _signed_parts(message):
        signed_text = "" if part.get("thought") else as_text(part.get("text"))
        if start < written or not text.startswith(signed_text, start):
            break  # the text was changed after it was signed
        if start > written:
            yield {"text": text[written:start]}
        yield part
        written = start + len(signed_text)
    if written < len(text):
        yield {"text": text[written:]}


def _signed_parts(message: Message) -> Iterator[tuple[int, JsonObject]]:
    """The parts that the decoder kept, each with its place in the text.

    A session file may hold something else, which is left out.
    """
    for entry in as_objects(_gemini_data(message.extra).get("signed")):
        start, part = as_count(entry.get("at")), as_object(entry.get("part"))
        if start is not None and as_text(part.get("thoughtSignature")):
            yield start, part


def _gemini_data(extra: Mapping[str, JsonObject]) -> JsonObject:
    return extra.get(API_NAME, {})


def _id_field(call: ToolCall) -> JsonObject:
    """The call's id as Gemini sent it; {} for older models, which have no ids of calls."""
    call_id = as_text(_gemini_data(call.extra).get("id"))
    return {"id": call_id} if call_id else {}


def _valid_name(call: ToolCall) -> str:
    """The tool's name; Gemini refuses one that begins with a digit or a hyphen."""
    return call.name if _NAME_BEGINS.match(call.name) else f"_{call.name}"


_NAMES = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "stop": "stopSequences",
    "penalty_present": "presencePenalty",
    "penalty_freq": "frequencyPenalty",
}
_MAX_STOP_TEXTS = 5
_SEEDS = 2**31  # the API's field is a signed 32-bit number
_ANY_OBJECT: JsonObject = {"type": "object"}


def chat_body(session: Session, model: adapter.ModelTraits, max_tokens: int) -> JsonObject:
    """The body; raises InvalidRequestError for a feature that Gemini lacks."""
    conversation = history.normalise(session.system_message, session.messages, RULES)
    body: JsonObject = {"contents": to_contents(conversation.messages, model.id)}
    if conversation.system:
        body["systemInstruction"] = {"parts": [{"text": conversation.system}]}
    if session.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(t) for t in session.tools]}]
        body["toolConfig"] = {"functionCallingConfig": _calling(session.tool_choice)}
    config = _parameters(session.sampling)
    # The API refuses a limit above the model's own.
    limit = min(max_tokens, model.output_limit) if model.output_limit else max_tokens
    if limit:
        config["maxOutputTokens"] = limit
    if session.output_format is not None:
        config |= _response_format(session.output_format)
    on, budget = parameters.thinks(session, model), session.thinking_budget
    thinking = thinking_config(model.id, on=on, effort=model.effort, budget=budget)
    if model.thinking and thinking:
        config["thinkingConfig"] = thinking
    if config:
        body["generationConfig"] = config
    return body


def _parameters(sampling: Sampling) -> JsonObject:
    """The sampling parameters under Gemini's names, in the ranges that it accepts."""
    result = parameters.sampling_parameters(sampling, _NAMES, "Gemini")
    if len(result.get("stopSequences", ())) > _MAX_STOP_TEXTS:
        message = f"Gemini takes at most {_MAX_STOP_TEXTS} stop texts"
        raise InvalidRequestError(message, "stop")
    if result.get("topK") == 0:  # our value for "off"; the API's minimum is 1
        del result["topK"]
    if "seed" in result:
        result["seed"] %= _SEEDS
    return result


def _declaration(tool: ToolSpec) -> JsonObject:
    """Empty parameters are left out: an object without properties is refused."""
    schema = gemini_schema(tool.parameters)[0] if tool.parameters.get("properties") else None
    return parameters.declaration(tool, "parametersJsonSchema", schema)


def _calling(choice: ToolChoice | None) -> JsonObject:
    """`functionCallingConfig`; None leaves it to the model whether it calls a tool."""
    if choice is None:
        return {"mode": "AUTO"}
    if choice.single and not choice.name:
        message = "Gemini can't be held to one call; leave out parallel_tool_calls"
        raise InvalidRequestError(message, "parallel_tool_calls")
    return {"mode": "ANY"} | ({"allowedFunctionNames": [choice.name]} if choice.name else {})


def _response_format(output_format: OutputFormat) -> JsonObject:
    """The fields that enforce the format; a strict one raises InvalidRequestError if they can't."""
    if output_format.schema is None:  # it is a grammar
        raise InvalidRequestError("Gemini does not support grammars; give a JSON schema", "grammar")
    result: JsonObject = {"responseMimeType": "application/json"}
    if output_format.schema == _ANY_OBJECT:  # the media type alone asks for it
        return result
    schema, lost = gemini_schema(output_format.schema)
    if output_format.strict and lost:
        message = f"response_format: Gemini can't enforce {', '.join(sorted(lost))}"
        raise InvalidRequestError(message, "response_format")
    return result | {"responseJsonSchema": schema}

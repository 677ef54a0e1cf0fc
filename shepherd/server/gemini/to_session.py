"""A Gemini request as a `Session`."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from pydantic.alias_generators import to_camel

from shepherd import errors, sampling, session
from shepherd.backends.base import ModelInfo
from shepherd.images import check_count
from shepherd.json_text import as_list, as_object
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.server.errors import ApiError, invalid, unsupported
from shepherd.server.gemini import answers, requests
from shepherd.server.seal import Seal
from shepherd.server.wire.content import CallHistory
from shepherd.server.wire.fields import check_images, effort_named, logprob_count, token_budget
from shepherd.server.wire.tools import NO_ARGUMENTS

_MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
_CONFIG = "generationConfig"
_TEXT, _JSON, _ENUM = "text/plain", "application/json", "text/x.enum"
_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\"} | {n: f"\\x{n:02X}" for n in range(32)})
_RESULT_KEYS = ("output", "result", "content", "return_value")
"""The names that Google, LiteLLM and pydantic-ai give to a result that is not an object."""


def session_from_request(
    request: requests.GenerateRequest, model: ModelInfo, seal: Seal, *, thinking: bool
) -> session.Session:
    """The conversation of a request to `model`; `thinking` is the default.

    Raises ApiError for fields that would change the answer and are not supported.
    """
    _check_supported(request)
    _check_contents(request.contents, model)
    config, instruction = request.generation, request.system_instruction
    tools, tool_choice = _functions(request)
    requested, thoughts = _wants_thinking(config), config.thinking_config
    return session.Session(
        system_message=instruction.text if instruction else "",
        messages=_conversation(request.contents, seal),
        tools=tools,
        sampling=_sampling(config),
        thinking=thinking if requested is None else requested,
        thinking_budget=token_budget(thoughts and thoughts.thinking_budget),
        thinking_effort=effort_named(thoughts and thoughts.thinking_level),
        tool_choice=tool_choice,
        output_format=_output_format(config),
    )


def _wants_thinking(config: requests.GenerationConfig) -> bool | None:
    """Whether a request asks for reasoning, None if it does not say."""
    thinking = config.thinking_config
    if thinking is None:
        return None
    if thinking.thinking_budget is not None:  # a budget of 0 switches reasoning off
        return thinking.thinking_budget != 0
    # a level, or thoughts to show, need reasoning; without both the default holds
    has_level = thinking.thinking_level not in (None, "", "THINKING_LEVEL_UNSPECIFIED")
    return True if has_level or thinking.include_thoughts else None


def _check_supported(request: requests.GenerateRequest) -> None:
    """Raise ApiError for what would change the answer and is not served."""
    if request.cached_content:
        message = "cachedContent is not served; send the whole conversation."
        raise unsupported("cachedContent", message)
    if request.continuation_token:
        raise unsupported("continuationToken", "continuationToken is not served.")
    config = request.generation
    of_other_media = {
        "responseModalities": set(config.response_modalities) - {"TEXT", "MODALITY_UNSPECIFIED"},
        "speechConfig": config.speech_config,
        "imageConfig": config.image_config,
    }
    for name, value in of_other_media.items():
        if value:
            param = f"{_CONFIG}.{name}"
            raise unsupported(param, f"{param}: only text is served.")


def _spec(declaration: requests.FunctionDeclaration) -> ToolSpec:
    """The function as a model sees it; its schema may be Google's or a JSON schema."""
    schema = declaration.parameters_json_schema
    if schema is None and declaration.parameters:
        schema = json_schema(declaration.parameters)
    return ToolSpec(declaration.name, declaration.description or "", schema or NO_ARGUMENTS)


def _functions(
    request: requests.GenerateRequest,
) -> tuple[list[ToolSpec], session.ToolChoice | None]:
    """The functions that the model sees, and the calls that the answer must be; raises ApiError."""
    declared = [function for tool in request.tools for function in tool.function_declarations]
    config = request.tool_config.function_calling_config if request.tool_config else None
    allowed = set(config.allowed_function_names) if config else set[str]()
    mode = (config and config.mode) or "MODE_UNSPECIFIED"
    if mode not in _MODES:
        raise _bad_choice("mode", f"must be one of {', '.join(_MODES[1:])}")
    if mode == "NONE":
        return [], None
    if allowed and mode not in ("ANY", "VALIDATED"):
        raise _bad_choice("allowedFunctionNames", "only with the mode ANY or VALIDATED")
    missing = allowed - {function.name for function in declared}
    if missing:
        first = min(missing)  # the same one each time
        raise _bad_choice("allowedFunctionNames", f"there is no function {first!r}")
    if mode == "ANY" and not declared:
        raise _bad_choice("mode", "functions are needed with ANY")
    specs = [_spec(function) for function in declared]
    offered = [spec for spec in specs if not allowed or spec.name in allowed]
    return offered, session.ToolChoice() if mode == "ANY" else None


def _bad_choice(field: str, reason: str) -> ApiError:
    """The error for a field that says which functions are called."""
    return invalid(f"toolConfig.functionCallingConfig.{field}", reason)


def _sampling(config: requests.GenerationConfig) -> sampling.Sampling:
    """The sampling parameters; raises ApiError where two do not fit together."""
    return sampling.Sampling(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        penalty_present=config.presence_penalty,
        penalty_freq=config.frequency_penalty,
        seed=None if config.seed is None else config.seed % 2**32,  # it may be negative
        stop=tuple(config.stop_sequences) or None,
        logprobs=logprob_count(
            requested=config.response_logprobs,
            top=config.logprobs,
            where=f"{_CONFIG}.logprobs",
            switch="responseLogprobs",
        ),
    )


def _conversation(contents: Sequence[requests.Content], seal: Seal) -> list[Message]:
    """The messages. Contents of the model that follow each other are one answer.

    Some clients keep each event of a stream as a content.
    """
    history = CallHistory()
    messages: list[Message] = []
    for is_answer, run in groupby(contents, lambda content: content.role == "model"):
        if is_answer:
            parts = [part for content in run for part in content.parts]
            messages.append(_answer(parts, history, seal))
        else:
            messages += [message for content in run for message in _input(content, history)]
    return messages


def _answer(parts: Sequence[requests.Part], history: CallHistory, seal: Seal) -> Message:
    """The message of an answer; its signature may hold reasoning that the parts leave out."""
    texts = [part.text or "" for part in parts if not part.thought]
    thoughts = [part.text or "" for part in parts if part.thought]
    wire_calls = [part.function_call for part in parts if part.function_call is not None]
    calls = tuple(
        ToolCall(call.id or history.next_id(), call.name, call.args) for call in wire_calls
    )
    history.add(calls)
    message = Message.assistant("".join(texts), "".join(thoughts), calls)
    words = (part.thought_signature for part in parts if part.thought_signature)
    return answers.restored(seal, message, words)


def _input(content: requests.Content, history: CallHistory) -> Iterator[Message]:
    """The results in a content, which belong behind their calls, then its text and images."""
    results = [part.function_response for part in content.parts if part.function_response]
    for result in results:
        yield _result(result, history)
    text = "\n".join(part.text for part in content.parts if part.text)
    images = requests.images_of(content.parts)
    if text or images or not results:  # results alone are no message of the user
        yield Message.user(text, images)


def _result(wire: requests.FunctionResponse, history: CallHistory) -> Message:
    """The result of the call that has its id, its name or its place."""
    call_id, name = history.answered(wire.id or "", wire.name or "")
    text, images = _result_text(wire.response), requests.images_of(wire.parts)
    return Message(Role.TOOL, text, tool_call_id=call_id, name=name, images=images)


def _result_text(response: object) -> str:
    """The text or the JSON of a result; clients wrap it in an object: `{"output": "text"}`."""
    value = response
    fields = as_object(response)
    if len(fields) == 1:
        ((key, wrapped),) = fields.items()
        value = wrapped if key in _RESULT_KEYS else fields
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _check_contents(contents: Sequence[requests.Content], model: ModelInfo) -> None:
    """Raise ApiError for parts in a content of a wrong role, and images that can't be seen."""
    for index, content in enumerate(contents):
        where = f"contents.{index}.parts"
        if content.role == "model":
            if any(part.function_response for part in content.parts):
                raise invalid(where, "functionResponse goes with contents of the user")
            if requests.images_of(content.parts):
                raise invalid(where, "images go with contents of the user and with results")
        elif any(part.function_call for part in content.parts):
            raise invalid(where, "functionCall goes with contents of the model")
        _check_images(content, model, where)


def _check_images(content: requests.Content, model: ModelInfo, where: str) -> None:
    """Raise ApiError for too many images, also of results, or for ones the model can't see."""
    images = [*requests.images_of(content.parts)]
    for part in content.parts:
        if part.function_response:
            images += requests.images_of(part.function_response.parts)
    check_images(images, model, where)
    try:
        check_count(images)
    except errors.ImageError as error:
        raise invalid(where, str(error)) from error


def _output_format(config: requests.GenerationConfig) -> session.OutputFormat | None:
    """The format, None for free text; raises ApiError for one that is not served."""
    mime_type = config.response_mime_type or _TEXT
    schema, googles_schema = config.response_json_schema, config.response_schema
    if schema is not None and googles_schema is not None:
        raise _bad("responseJsonSchema", "not with a responseSchema")
    if googles_schema is not None:
        schema = json_schema(googles_schema)
    if mime_type == _JSON:
        return session.OutputFormat(schema or {"type": "object"})
    if mime_type == _ENUM:
        return session.OutputFormat(grammar=_choices(schema))
    if mime_type != _TEXT:
        where = f"{_CONFIG}.responseMimeType"
        message = f"{where}: must be {_TEXT}, {_JSON} or {_ENUM}; others are not served"
        raise unsupported(where, message)
    if schema is not None:
        raise _bad("responseMimeType", f"must be {_JSON} or {_ENUM} with a schema")
    return None


def _choices(schema: JsonObject | None) -> str:
    """A grammar of the texts in an `enum`, which are written without quotes."""
    value: object = (schema or {}).get("enum")
    choices = as_list(value)
    texts = [choice for choice in choices if isinstance(choice, str) and choice]
    if not texts or len(texts) != len(choices):
        raise _bad("responseSchema", f"needs an enum of texts with {_ENUM}")
    return "root ::= " + " | ".join(f'"{text.translate(_ESCAPES)}"' for text in texts)


def _bad(field: str, reason: str) -> ApiError:
    """The error for a field of the generation config."""
    return invalid(f"{_CONFIG}.{field}", reason)


_COUNT = re.compile("[0-9]{1,9}", re.ASCII)
_COUNTS = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
_NOT_A_CONSTRAINT = {"propertyOrdering", "nullable", "example"}
_TYPE_FORMATS = {"enum", "int32", "int64", "float", "double"}


def json_schema(schema: Mapping[str, Any]) -> JsonObject:
    """The JSON schema of the same values.

    Counts may be numbers as strings, as in Google's JSON. `nullable` adds null to the values, and
    `propertyOrdering` decides the order in which properties are written.
    """
    fields = {_keyword(name): value for name, value in schema.items()}
    result: JsonObject = {}
    for name, value in fields.items():
        if name not in _NOT_A_CONSTRAINT and value is not None:
            result |= _converted(name, value)
    order, properties = fields.get("propertyOrdering"), result.get("properties")
    if isinstance(order, list) and isinstance(properties, dict):
        result["properties"] = _ordered(cast(JsonObject, properties), cast(list[object], order))
    return _nullable(result) if fields.get("nullable") is True else result


def _keyword(name: str) -> str:
    """JSON schema's name for a field of Google's: `any_of` is `anyOf`, and `ref` is `$ref`."""
    if name in ("defs", "ref"):
        return f"${name}"
    # `$defs` and its like are JSON schema's names already
    return to_camel(name) if name.isidentifier() else name


def _converted(name: str, value: Any) -> JsonObject:
    """The field of a JSON schema for one of Google's; none for one that constrains nothing."""
    match value:
        case str() if name == "type":
            kind = value.lower()
            return {} if kind == "type_unspecified" else {name: kind}
        case list() if name == "type":
            kinds = cast(list[Any], value)
            return {name: [kind.lower() if isinstance(kind, str) else kind for kind in kinds]}
        case str() if name in _COUNTS and _COUNT.fullmatch(value):
            return {name: int(value)}
        case str() if name == "format" and value in _TYPE_FORMATS:  # the type says it already
            return {}
        case dict() if name in ("properties", "$defs"):
            schemas = cast(JsonObject, value)
            return {name: {key: _schema_in(inner) for key, inner in schemas.items()}}
        case list() if name in ("anyOf", "prefixItems"):
            return {name: [_schema_in(inner) for inner in cast(list[Any], value)]}
        case dict() if name in ("items", "additionalProperties"):
            return {name: _schema_in(cast(JsonObject, value))}
        case _:
            return {name: value}


def _schema_in(value: Any) -> Any:
    """The JSON schema of a schema in another one; what is none stays, to be refused later."""
    return json_schema(cast(JsonObject, value)) if isinstance(value, dict) else value


def _ordered(properties: JsonObject, order: list[object]) -> JsonObject:
    """The properties in an order; those that it does not name come last."""
    named = [name for name in order if isinstance(name, str) and name in properties]
    return {name: properties[name] for name in named} | properties


def _nullable(schema: JsonObject) -> JsonObject:
    """The schema or null; an empty one allows it already."""
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return schema | {"type": [kind, "null"]}
    # with an `enum` the type alone would not do: null is not among its values
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema

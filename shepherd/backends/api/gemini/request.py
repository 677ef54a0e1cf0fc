"""A session as the body of a generateContent request."""

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.gemini.contents import RULES, to_contents
from shepherd.backends.api.gemini.schema import gemini_schema
from shepherd.backends.api.gemini.traits import thinking_config
from shepherd.backends.api.history import normalise
from shepherd.backends.api.parameters import sampling_parameters, thinks
from shepherd.backends.api.schemas import declaration
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import Session
from shepherd.structure import OutputFormat, ToolChoice

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


def chat_body(session: Session, model: ModelTraits, max_tokens: int) -> JsonObject:
    """The body; raises InvalidRequestError for a feature that Gemini lacks."""
    conversation = normalise(session.system_message, session.messages, RULES)
    body: JsonObject = {"contents": to_contents(conversation.messages, model.id)}
    if conversation.system:
        body["systemInstruction"] = {"parts": [{"text": conversation.system}]}
    if session.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(t) for t in session.tools]}]
        body["toolConfig"] = {"functionCallingConfig": _calling(session.tool_choice)}
    config = _parameters(session.sampling)
    limit = _output_limit(max_tokens, model)
    if limit:
        config["maxOutputTokens"] = limit
    if session.output_format is not None:
        config |= _response_format(session.output_format)
    on, budget = thinks(session, model), session.thinking_budget
    thinking = thinking_config(model.id, on=on, effort=model.effort, budget=budget)
    if model.thinking and thinking:
        config["thinkingConfig"] = thinking
    if config:
        body["generationConfig"] = config
    return body


def _parameters(sampling: Sampling) -> JsonObject:
    result = sampling_parameters(sampling, _NAMES, "Gemini")
    if len(result.get("stopSequences", ())) > _MAX_STOP_TEXTS:
        message = f"Gemini takes at most {_MAX_STOP_TEXTS} stop texts"
        raise InvalidRequestError(message, "stop")
    if result.get("topK") == 0:  # our value for "off"; the API's minimum is 1
        del result["topK"]
    if "seed" in result:
        result["seed"] %= _SEEDS
    return result


def _output_limit(max_tokens: int, model: ModelTraits) -> int:
    """The API refuses a limit above the model's own."""
    return min(max_tokens, model.output_limit) if model.output_limit else max_tokens


def _declaration(tool: ToolSpec) -> JsonObject:
    """Empty parameters are left out: an object without properties is refused."""
    schema = gemini_schema(tool.parameters)[0] if tool.parameters.get("properties") else None
    return declaration(tool, "parametersJsonSchema", schema)


def _calling(choice: ToolChoice | None) -> JsonObject:
    if choice is None:
        return {"mode": "AUTO"}
    if choice.single and not choice.name:
        message = "Gemini can't be held to one call; leave out parallel_tool_calls"
        raise InvalidRequestError(message, "parallel_tool_calls")
    return {"mode": "ANY"} | ({"allowedFunctionNames": [choice.name]} if choice.name else {})


def _response_format(output_format: OutputFormat) -> JsonObject:
    if output_format.schema is None:
        raise InvalidRequestError("Gemini does not support grammars; give a JSON schema", "grammar")
    result: JsonObject = {"responseMimeType": "application/json"}
    if output_format.schema == _ANY_OBJECT:
        return result
    schema, lost = gemini_schema(output_format.schema)
    if output_format.strict and lost:
        message = f"response_format: Gemini can't enforce {', '.join(sorted(lost))}"
        raise InvalidRequestError(message, "response_format")
    return result | {"responseJsonSchema": schema}

"""The parameters of a request beside its conversation."""

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.anthropic.dialect import Dialect
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject
from shepherd.sampling import Sampling
from shepherd.structure import ToolChoice

SAMPLING_PARAMETERS = ("temperature", "top_p", "top_k")


USUAL_LIMIT = 8192
"""The required `max_tokens` for a model with an unknown limit."""


def output_limit(max_tokens: int, model: ModelTraits, dialect: Dialect) -> int:
    """The `max_tokens` to send: the requested number or the model's limit, within the context.

    Without a number, half of a known context is reserved for the conversation.
    """
    limit = model.output_limit or dialect.output_limit
    if max_tokens > 0:
        return min(max_tokens, limit or max_tokens, model.context_size or max_tokens)
    limit = limit or USUAL_LIMIT
    return max(1, min(limit, model.context_size // 2)) if model.context_size else limit


def sampling_of(sampling: Sampling, dialect: Dialect, *, thinking: bool) -> JsonObject:
    """The sampling parameters that the model accepts; settings for other models are left out.

    A request with thinking has none of them. Raises InvalidRequestError for a value out of range.
    """
    result: JsonObject = {}
    if sampling.stop:
        result["stop_sequences"] = _stops(sampling.stop)
    if thinking or not dialect.sampling:
        return result
    if sampling.temperature is not None:
        result["temperature"] = _ranged("temperature", sampling.temperature)
    if sampling.top_p is not None and not (dialect.one_sampler and "temperature" in result):
        result["top_p"] = _ranged("top_p", sampling.top_p)
    if sampling.top_k:
        result["top_k"] = sampling.top_k
    return result


def tool_choice_of(choice: ToolChoice, dialect: Dialect, model: str) -> JsonObject:
    """The `tool_choice` for required calls; raises InvalidRequestError if they can't be forced."""
    if not dialect.forced_calls:
        message = f"{model} can't be made to call a tool: leave tool_choice to the model"
        raise InvalidRequestError(message, "tool_choice")
    how = {"type": "tool", "name": choice.name} if choice.name else {"type": "any"}
    return how | ({"disable_parallel_tool_use": True} if choice.single or choice.name else {})


def _stops(stop: tuple[str, ...]) -> list[str]:
    if not all(text.strip() for text in stop):
        message = "stop: this API does not accept whitespace only; leave it out for this provider"
        raise InvalidRequestError(message, "stop")
    return list(stop)


def _ranged(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        message = f"{name} must be between 0.0 and 1.0 for this API, got {value}"
        raise InvalidRequestError(message, name)
    return value

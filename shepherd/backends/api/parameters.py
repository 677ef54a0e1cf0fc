"""Sampling parameters under an API's names for them."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from shepherd.backends.api.adapter import ModelTraits
from shepherd.config.section import Effort
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject
from shepherd.sampling import Sampling
from shepherd.session import Session

_NEEDED = ("logit_bias", "ignore_eos", "logprobs")
"""A request depends on these; the others only shape the answer."""


def sampling_parameters(
    sampling: Sampling, names: Mapping[str, str], api: str, elsewhere: Collection[str] = ()
) -> JsonObject:
    """The parameters that are set and that the API has, under its `names` for them.

    Settings for other models are left out. Raises InvalidRequestError if that would change the
    requested answer, except for parameters that the caller sends `elsewhere`.
    """
    for needed in _NEEDED:
        value = getattr(sampling, needed)
        known = needed in names or needed in elsewhere
        if not known and not (value is None or value is False or value == ()):
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

_OPTIONAL = {
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
"""Parameters that a request can drop without changing its meaning, by their fields."""

OPTIONAL_FIELDS = tuple(_OPTIONAL)
"""Their fields; of two that exclude each other, the first one stays."""


def without_refused(sampling: Sampling, refused: Collection[str]) -> Sampling:
    """The parameters without those that the provider has refused."""
    names = {_OPTIONAL[field] for field in refused if field in _OPTIONAL}
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
    return min(known, key=lambda one: abs(EFFORTS.index(one) - place))

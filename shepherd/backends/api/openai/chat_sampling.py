"""Sampling parameters of chat completions."""

from dataclasses import replace

from shepherd.backends.api.openai.dialects import Dialect
from shepherd.backends.api.openai.models import reasons
from shepherd.backends.api.parameters import sampling_parameters
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject
from shepherd.sampling import Sampling

_FIXED = ("temperature", "top_p", "penalty_freq", "penalty_present")
"""What OpenAI's reasoning models do not let be chosen."""

_SAMPLERS = {"typical_p": "typ_p"}
"""llama.cpp's names for samplers where they are not ours."""

_ELSEWHERE = ("logit_bias", "logprobs")


def chat_sampling(sampling: Sampling, model: str, dialect: Dialect) -> JsonObject:
    """The fields of a request; raises InvalidRequestError for what the server has not.

    OpenAI's reasoning models sample in their own way: temperature and the like are left out.
    """
    if reasons(model):
        sampling = replace(sampling, **dict.fromkeys(_FIXED))
        _refuse(sampling, ("stop", "logit_bias", "logprobs"), model)
    if len(sampling.stop or ()) > dialect.stop_texts:
        message = f"stop: {dialect.name} takes at most {dialect.stop_texts} texts"
        raise InvalidRequestError(message, "stop")
    body = sampling_parameters(sampling, dialect.sampling, dialect.name, _ELSEWHERE)
    body |= {other: body[name] for name, other in dialect.aliases.items() if name in body}
    if sampling.samplers and "samplers" in body:
        body["samplers"] = [_SAMPLERS.get(name, name) for name in sampling.samplers]
    return body | _biases(sampling, dialect) | _logprobs(sampling)


def _refuse(sampling: Sampling, names: tuple[str, ...], model: str) -> None:
    for name in names:
        if getattr(sampling, name) not in (None, ()):
            raise InvalidRequestError(f"{model} has no parameter {name}; leave it out", name)


def _biases(sampling: Sampling, dialect: Dialect) -> JsonObject:
    if not sampling.logit_bias:
        return {}
    if not dialect.text_bias and any(isinstance(token, str) for token, _ in sampling.logit_bias):
        message = f"logit_bias: {dialect.name} knows tokens by their numbers only"
        raise InvalidRequestError(message, "logit_bias")
    biases = {str(token): bias for token, bias in sampling.logit_bias}
    return {"logit_bias": {token: int(b) if b.is_integer() else b for token, b in biases.items()}}


def _logprobs(sampling: Sampling) -> JsonObject:
    if sampling.logprobs is None:
        return {}
    top = {"top_logprobs": sampling.logprobs} if sampling.logprobs else {}
    return {"logprobs": True, **top}

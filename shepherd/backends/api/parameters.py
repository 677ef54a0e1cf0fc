"""Sampling parameters under the names that an API has for them."""

from collections.abc import Collection, Mapping

from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject
from shepherd.sampling import Sampling

_NEEDED = ("logit_bias", "ignore_eos", "logprobs")
"""Who asks for these counts on them; the others only shape the answer."""


def sampling_parameters(
    sampling: Sampling, names: Mapping[str, str], api: str, elsewhere: Collection[str] = ()
) -> JsonObject:
    """The parameters that are set and that the API has, under its `names` for them.

    Settings for other models are left out. Raises InvalidRequestError where that would give
    another answer than was asked for, but for what the caller sends `elsewhere`.
    """
    for needed in _NEEDED:
        value = getattr(sampling, needed)
        known = needed in names or needed in elsewhere
        if not known and not (value is None or value is False or value == ()):
            message = f"{api} has no {needed}; leave it out for this provider"
            raise InvalidRequestError(message, needed)
    found: JsonObject = {}
    for ours, theirs in names.items():
        value = getattr(sampling, ours)
        if value is not None and value != ():
            found[theirs] = [*value] if ours == "stop" else value
    return found

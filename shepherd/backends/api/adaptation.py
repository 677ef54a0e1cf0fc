"""Changes requests after a provider has refused one; the request is then made again.

Each change removes the refused part from the request, so no change is made twice.
"""

import re
from typing import NamedTuple

from msgspec.structs import replace

from shepherd.backends.api.adapter import Adapter, ModelTraits
from shepherd.backends.api.http.failures import Failure, Refusal
from shepherd.backends.api.parameters import LIMIT_PARAMETERS, OPTIONAL_FIELDS
from shepherd.backends.api.prompt import REFUSING, Prompt, forbids, rejects_images, rejects_tools
from shepherd.errors import InvalidRequestError
from shepherd.json_text import as_object, as_objects


class Adaptation(NamedTuple):
    """The adapter that makes requests, and the known traits of the model."""

    adapter: Adapter
    traits: ModelTraits


def adapt(error: InvalidRequestError, refused: Prompt, current: Adaptation) -> Adaptation | None:
    """The adaptation after this refusal; None if no change of the request helps.

    `refused` is the prompt that was sent, `current` the adaptation that is in use by now.
    """
    failure = error.__cause__
    refusal = failure.refusal if isinstance(failure, Failure) else None
    if refusal is None:  # the error is our own: nothing was sent
        return None
    adapter, traits = current
    if rejects_images(str(error)) and any(message.images for message in refused.session.messages):
        return Adaptation(adapter, replace(traits, vision=False))
    if refused.sent.tools and rejects_tools(refusal.message):
        return Adaptation(adapter, replace(traits, tools=False))
    if _has_unknown_field(refusal, refused):
        # another request may have changed the adapter in the meantime
        plain = refused.adapter.plain() if adapter is refused.adapter else adapter
        return Adaptation(plain, traits)
    fields = _refused_parameters(refusal, refused, traits)
    return Adaptation(adapter, replace(traits, refused=traits.refused | fields)) if fields else None


_ONLY_DEFAULT = re.compile(
    r"only the default|does not support \S+ with this model|deprecated for this model"
    r"|can(?:no|')t both be specified|only one of",
    re.IGNORECASE,
)


def _refused_parameters(refusal: Refusal, refused: Prompt, traits: ModelTraits) -> frozenset[str]:
    """The parameters that the model refuses, or accepts only with their default value.

    The output limit may be sent under its other name; the others may be left out.
    """
    if refusal.status not in REFUSING:
        return frozenset()
    message, body = refusal.message, refused.request.body or {}
    # Gemini and Ollama have the parameters in an object of their own
    sent = {*body, *(name for value in body.values() for name in as_object(value))}
    # the output limit has two names: the other one is tried, unless that was refused too
    limit = next((name for name in LIMIT_PARAMETERS if name in sent), "")
    has_other_name = not traits.refused.issuperset({*LIMIT_PARAMETERS} - {limit})
    if limit and has_other_name and _mentions(message, limit) and forbids(message):
        return frozenset({limit})
    if not (forbids(message) or _ONLY_DEFAULT.search(message)):
        return frozenset()
    named = [name for name in OPTIONAL_FIELDS if name in sent and _mentions(message, name)]
    if "both" in message and len(named) > 1:
        return frozenset(named[1:])  # of two that exclude each other, the first one stays
    return frozenset(named)


def _mentions(message: str, name: str) -> bool:
    """Whether `name` is a word of the message: "max_tokens" is none of "max_tokens_limit"."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) is not None


def _has_unknown_field(refusal: Refusal, refused: Prompt) -> bool:
    """Whether the server refused an optional field that only some servers know.

    It stands in the request itself or in one of its messages.
    """
    body = refused.request.body or {}
    sent = {*body, *(name for message in as_objects(body.get("messages")) for name in message)}
    extras = sent.intersection(refused.adapter.extras)
    is_named = any(_mentions(refusal.message, name) for name in extras)
    return refusal.status in REFUSING and is_named and forbids(refusal.message)

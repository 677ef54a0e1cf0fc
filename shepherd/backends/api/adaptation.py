"""What a refusal teaches about a provider, of which the same request is made again otherwise.

Each lesson takes from the request what was refused, so that none is learned of it twice.
"""

from dataclasses import replace
from typing import NamedTuple

from shepherd.backends.api.adapter import ModelTraits, Wire
from shepherd.backends.api.history.prompted_tools import (
    REFUSING,
    fields_of,
    refuses_field,
    says_toolless,
)
from shepherd.backends.api.history.vision import says_blind
from shepherd.backends.api.http.failures import Failure, Refusal
from shepherd.backends.api.prefilled import Prompt
from shepherd.errors import InvalidRequestError


class Known(NamedTuple):
    """How a backend asks: in which language, and what it knows of the model."""

    wire: Wire
    traits: ModelTraits


def learned(error: InvalidRequestError, refused: Prompt, known: Known) -> Known | None:
    """What is known once this prompt was refused; None if there is nothing to do about it."""
    failure = error.__cause__
    refusal = failure.refusal if isinstance(failure, Failure) else None
    if refusal is None:
        return None
    wire, traits = known
    if says_blind(str(error)) and any(message.images for message in refused.session.messages):
        return Known(wire, replace(traits, vision=False))
    if refused.sent.tools and says_toolless(refusal.said):
        return Known(wire, replace(traits, tools=False))
    if _is_strict(refusal, refused):
        return Known(refused.wire.plain() if wire is refused.wire else wire, traits)
    return None


def _is_strict(refusal: Refusal, refused: Prompt) -> bool:
    """Whether a field was refused that was sent to the server in the hope that it knows it."""
    sent = fields_of(refused.request.body or {}) & set(refused.wire.extras)
    return refusal.status in REFUSING and refuses_field(refusal.said, sent)

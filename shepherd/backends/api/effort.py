"""How much a model is to think: the provider's setting as each API says it."""

from shepherd.backends.api.wire import ModelTraits
from shepherd.session import Session

NONE = "none"
EFFORTS = (NONE, "minimal", "low", "medium", "high", "xhigh")
"""From none at all up; no API has all of them."""

BUDGETS = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 24_576, "xhigh": 32_000}
"""In tokens, for models that want a number."""


def thinks(session: Session, model: ModelTraits) -> bool:
    """Whether the model is to think: by the provider's effort, else as the session has it."""
    return model.effort != NONE if model.effort else session.thinking


def nearest(effort: str, known: tuple[str, ...]) -> str:
    """The one of the `known` efforts that is nearest to this one, the lower of two."""
    place = EFFORTS.index(effort)
    return min(known, key=lambda one: abs(EFFORTS.index(one) - place))

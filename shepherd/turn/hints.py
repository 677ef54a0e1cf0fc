"""Telling a model that its call was not understood, so that it writes it again."""

from dataclasses import dataclass

from shepherd.backends.base import Generation
from shepherd.events import FinishReason
from shepherd.messages import Message
from shepherd.session import Session

HINT = (
    "[No tool was run. {problems} Write the whole call again in the right form, "
    "or answer in plain words if no call was meant.]"
)
ASKED_AGAIN = "A tool call could not be understood, so the model is asked again: {problems}"
GIVEN_UP = "A tool call could not be understood and was not run: {problems}"


@dataclass(slots=True)
class HintGuard:
    """How often a turn may still go on after a call that was not understood."""

    left: int

    def needed(self, session: Session, generation: Generation) -> bool:
        """Whether `generation` is an answer that was meant to call a tool and did not."""
        ended_well = generation.finish_reason is FinishReason.STOP
        called = bool(generation.message.tool_calls)
        return bool(session.tools and generation.problems) and ended_well and not called

    def take(self) -> bool:
        """Use up one hint; False when there is none left."""
        self.left -= 1
        return self.left >= 0


def hint(generation: Generation) -> Message:
    """The message that tells the model what was wrong."""
    return Message.hint(HINT.format(problems=" ".join(generation.problems)))

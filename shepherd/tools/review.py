"""The end of a turn in the mode `review`: one question about all that its calls have changed."""

import asyncio
from contextlib import suppress

from msgspec import Struct

from shepherd.errors import ConflictError, ToolError, UnkeptError
from shepherd.tools.access import Access
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.merge import show_conflicts
from shepherd.tools.layer.shared import SharedLayer
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Approver
from shepherd.tools.settlement import Settlement, listed
from shepherd.tools.text import one_line, valid_text
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult

GOES_ON = "The user has read the changes of this turn, which are not kept yet, and says: {feedback}"
CONFLICT = (
    "Something else changed the same files at the same time, so the changes of this turn are not "
    "kept yet. {conflicts}. Settle that in the files."
)
DROPPED = "The user did not want the changes of this turn: all of them were dropped."
KEPT = "The changes of this turn were kept"


class ReviewChanges(Tool[Arguments]):
    """Stands for the calls of a turn where one call is needed; no model is offered it."""

    name = "review_changes"
    description = "Review the changes of the turn."
    arguments = Arguments

    def accesses(self, arguments: Arguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        return ToolResult("")


class Reviewed(Struct, frozen=True):
    """What came out: `text` is for the user, and the model goes on with `feedback` if there is."""

    text: str
    feedback: str = ""


class LastAnswer(Struct):
    """An approver that notes the last answer of another one."""

    approver: Approver
    feedback: str = ""
    unanswered: bool = False

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The answer of the other approver."""
        approval = await self.approver.ask(request)
        self.feedback, self.unanswered = approval.feedback, approval.unanswered
        return approval


async def show_conflict(review: SharedLayer, error: ConflictError) -> Reviewed:
    """Let the model settle a conflict in the layer, where it sees both sides."""
    problem = f"Something else changed {listed(error.paths)} at the same time: the changes wait"
    layer, sentences = review.layer, list[str]()
    if layer is not None:
        with suppress(ToolError, OSError):
            async with layer.mounted:
                effect = await asyncio.to_thread(read_effect, layer)
                sentences = await asyncio.to_thread(show_conflicts, layer, effect.changes)
    if not sentences:
        return Reviewed(f"{problem} for the end of the next turn.")
    conflicts = one_line(valid_text("; ".join(sentences)))
    return Reviewed(f"{problem} for the model.", CONFLICT.format(conflicts=conflicts))


async def settle(review: SharedLayer, settlement: Settlement, answer: LastAnswer) -> Reviewed:
    """Commit or drop what the turn has changed; it stays if the user wants the model to go on.

    It also stays if the task is cancelled, and if something else has changed the same files: then
    it raises ConflictError.
    """
    layer = review.layer
    if layer is None:
        return Reviewed("")
    try:
        async with layer.mounted:
            notes = await settlement.commit(layer)
    except ConflictError:  # it is a ToolError, too
        raise
    except UnkeptError as error:
        return Reviewed(f"The changes of this turn wait for the end of the next one: {error}.")
    except ToolError:
        if answer.feedback:
            return Reviewed("", GOES_ON.format(feedback=answer.feedback))
        await review.drop()
        return Reviewed(DROPPED)
    await review.drop()
    # a note is in brackets for the results of calls
    return Reviewed("; ".join([KEPT, *(note[1:-1] for note in notes)]) + ".")

"""The plan of a long task: the model's list of steps, and a plan that the user accepts."""

from collections.abc import Sequence
from typing import Annotated

import pydantic

from shepherd import errors, events, messages
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult, Traits

MAX_STEPS = 50
MAX_STEP = 300
MAX_PLAN = 20_000

UPDATE_PLAN, PRESENT_PLAN = "update_plan", "present_plan"
PLAN_TOOLS = frozenset({UPDATE_PLAN, PRESENT_PLAN})

ACCEPTED = "The user accepts the plan. Carry it out now."
NOT_ACCEPTED = (
    "The user has not accepted the plan ({reason}). Nothing may be changed yet. Improve the plan "
    "if the user said how; otherwise end your answer here."
)
NOT_PLANNING = "Plan mode is off: you may carry out the plan without asking."


ASCII_SIGNS = {
    events.StepStatus.PENDING: "[ ]",
    events.StepStatus.IN_PROGRESS: "[>]",
    events.StepStatus.COMPLETED: "[x]",
}


class Step(pydantic.BaseModel):
    """One step of the plan."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    step: Annotated[
        str, pydantic.StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_STEP)
    ]
    status: events.StepStatus = events.StepStatus.PENDING

    @pydantic.model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        """A step, which small models also write as a plain text."""
        return {"step": data} if isinstance(data, str) else data


_STEPS = {
    "items": {
        "properties": {
            "step": {"type": "string"},
            "status": {"enum": [status.value for status in events.StepStatus], "type": "string"},
        },
        "required": ["step", "status"],
        "type": "object",
    },
    "type": "array",
}


class PlanArguments(Arguments):
    """All steps of the plan, in order."""

    steps: Annotated[
        list[Step],
        pydantic.Field(min_length=1, max_length=MAX_STEPS),
        pydantic.WithJsonSchema(_STEPS),
    ]


class UpdatePlan(Tool[PlanArguments]):
    """Replaces the plan; the user sees it as a checklist."""

    name = UPDATE_PLAN
    traits = Traits("think")
    description = "Show the user your steps in a long task; send all of them each time."
    arguments = PlanArguments

    def accesses(self, arguments: PlanArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: PlanArguments, context: ToolContext) -> ToolResult:
        """Show the user the new plan, which replaces the old one."""
        steps = arguments.steps
        context.on_event(_update(steps))
        completed = sum(step.status is events.StepStatus.COMPLETED for step in steps)
        return ToolResult(f"The user sees the plan: {completed} of {len(steps)} completed.")


class PresentArguments(Arguments):
    """The plan."""

    plan: Annotated[
        str, pydantic.StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_PLAN)
    ]


class PresentPlan(Tool[PresentArguments]):
    """Asks the user whether to carry out a plan, which ends plan mode."""

    name = PRESENT_PLAN
    description = "In plan mode: ask the user to accept your finished plan."
    arguments = PresentArguments

    def accesses(self, arguments: PresentArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: PresentArguments, context: ToolContext) -> ToolResult:
        """Show the user the plan, and tell the model whether it was accepted."""
        context.on_event(events.PlanUpdate(proposal=arguments.plan))
        try:
            needed_approval = await context.authorize(
                Access(AccessKind.PLAN, "plan"), arguments.plan
            )
        except errors.ToolError as error:  # no failure of the call: the model goes on planning
            return ToolResult(NOT_ACCEPTED.format(reason=error))
        return ToolResult(ACCEPTED if needed_approval else NOT_PLANNING)


def plan_of(arguments: messages.JsonObject) -> events.PlanUpdate:
    """The plan in a call's arguments; without steps if they are not valid."""
    try:
        return _update(PlanArguments.model_validate(arguments).steps)
    except pydantic.ValidationError:
        return events.PlanUpdate()


def _update(steps: Sequence[Step]) -> events.PlanUpdate:
    return events.PlanUpdate(tuple(events.PlanStep(step.step, step.status) for step in steps))

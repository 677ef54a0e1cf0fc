"""The answer of a client to a question about a call."""

from typing import Annotated, Literal

from pydantic import Field

from shepherd.server.body import RequestModel

MAX_REASON = 10_000


class DecisionBody(RequestModel):
    """The body of `POST /approvals/{id}`."""

    decision: Annotated[
        Literal["once", "session", "always", "deny"],
        Field(description="`session` and `always` add the rules that the question names."),
    ]
    reason: Annotated[str, Field(max_length=MAX_REASON, description="A word to the model.")] = ""
    values: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_REASON)], ...],
        Field(max_length=20, description="The texts for the `fields` of the question."),
    ] = ()

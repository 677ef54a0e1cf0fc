"""The settings for hooks: the user's commands around the work of the model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shepherd.config.section import Section

MAX_TIMEOUT = 600.0


class Hook(Section):
    """One command; it gets JSON on its input, and answers with JSON."""

    command: Annotated[
        str, Field(min_length=1, description="A shell line; it runs in the working directory.")
    ]
    match: Annotated[
        str,
        Field(
            min_length=1,
            description="Glob of tools, or of kinds of access such as `write` or `shell*`.",
        ),
    ] = "*"
    timeout: Annotated[
        float, Field(gt=0, le=MAX_TIMEOUT, description="Seconds after which it has failed.")
    ] = 30.0
    env: Annotated[
        list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]],
        Field(description="Variables of the environment that it gets beside the usual ones."),
    ] = []


class HooksSection(Section):
    """Commands of the user that run around the work of the model; see docs/hooks.md."""

    session_start: Annotated[
        list[Hook],
        Field(description="Before the first prompt of a session; can add context for the model."),
    ] = []
    before_tool: Annotated[
        list[Hook],
        Field(
            description="Before an allowed call of a tool that `match` names; can deny the call, "
            "or ask about it. A hook that fails denies it."
        ),
    ] = []
    after_tool: Annotated[
        list[Hook],
        Field(description="After a call; can add to its result, or hold it back."),
    ] = []
    turn_end: Annotated[
        list[Hook],
        Field(description="After the last answer of a turn; a text continues the turn, 3 times."),
    ] = []


NO_HOOKS = HooksSection()

"""The `[memory]` section."""

from typing import Annotated, Literal

from pydantic import Field

from shepherd.config.sections import Section


class MemorySection(Section):
    """What outlives a conversation's context: messages that left it, and facts."""

    enabled: Annotated[
        bool,
        Field(
            description="Keep what leaves a full context, and facts. Nothing is kept either when "
            "`terminal.save_sessions` is off."
        ),
    ] = True
    tools: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Offer the model `search_memory` and the tools for facts; `auto` does not "
            "where a model was trained on a fixed list of tools, as the built-in one was."
        ),
    ] = "auto"
    max_mib: Annotated[
        int,
        Field(ge=1, le=1_048_576, description="MiB of text that are kept; the oldest goes first."),
    ] = 64

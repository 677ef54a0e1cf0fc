"""The `[model]` section."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shepherd.config.section import LIVE, Section


class ModelSection(Section):
    """The model that answers, and its instructions."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            description="Built-in model (`pup`), a model in `llamacpp.models_dir` by name or "
            "relative path, or an absolute path to a GGUF file.",
        ),
        LIVE,
    ] = "pup"
    provider: Annotated[
        str,
        Field(
            description="Provider that answers instead of the local model: `NAME`, or "
            '`NAME/MODEL` for another of its models; "" = none.'
        ),
        LIVE,
    ] = ""
    fallback: Annotated[
        bool,
        Field(
            description="If the provider can't be reached, use the next one by priority, with a "
            "notice; it then receives the conversations."
        ),
        LIVE,
    ] = False
    thinking: Annotated[bool, Field(description="Let the model reason before it answers.")] = False
    tools: Annotated[bool, Field(description="Offer the model the built-in tools.")] = True
    system_message: Annotated[
        str | None,
        Field(description='System message; unset = Shepherd\'s own, "" = none.'),
    ] = None
    max_tokens: Annotated[
        int,
        Field(ge=0, le=16_777_216, description="Maximum answer in tokens; 0 = as many as fit."),
        LIVE,
    ] = 0
    max_rounds: Annotated[
        int, Field(ge=1, le=10_000, description="Maximum rounds of tool calls in one turn.")
    ] = 50
    max_hints: Annotated[
        int,
        Field(
            ge=0,
            le=10,
            description="Maximum hints per turn that tell the model why a call was not understood.",
        ),
    ] = 2

    @property
    def label(self) -> str:
        """The name of the answering model: the provider and its model, or the local model."""
        return self.provider or self.name

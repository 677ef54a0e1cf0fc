"""The `[sampling]` section."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field, create_model, model_validator

from shepherd.config.section import Section
from shepherd.errors import InvalidRequestError
from shepherd.sampling import PARAMETERS, Sampling, check_sampling

_FIELDS: Any = {
    name: (p.kind | None, Field(default=None, ge=p.low, le=p.high, description=p.help))
    for name, p in PARAMETERS.items()
    if name != "logprobs"
}
if TYPE_CHECKING:
    _Numbers = Section
else:  # a setting for each number of `Sampling`
    _Numbers = create_model("_Numbers", __base__=Section, **_FIELDS)


class SamplingSection(_Numbers):
    """The default sampling of requests; unset = the model file's value."""

    dry_sequence_breakers: Annotated[
        list[str] | None, Field(description="Texts that interrupt a repetition for DRY.")
    ] = None
    samplers: Annotated[
        list[str] | None, Field(description="The samplers that are applied, in order.")
    ] = None
    stop: Annotated[
        list[str] | None, Field(description="Texts that end an answer; at most 16.")
    ] = None

    @model_validator(mode="after")
    def _in_range(self) -> SamplingSection:
        try:
            check_sampling(self.to_sampling())
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def to_sampling(self) -> Sampling:
        """The section as plain data."""
        values = self.model_dump()
        for name, value in values.items():
            values[name] = tuple(cast(list[str], value)) if isinstance(value, list) else value
        return Sampling(**values)

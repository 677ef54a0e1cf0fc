"""The `[sampling]` section."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import Field, model_validator

from shepherd.config.section import Section
from shepherd.errors import InvalidRequestError
from shepherd.sampling import RANGES, Sampling, check_sampling


def _ranged(name: str, description: str) -> Any:
    low, high = RANGES[name]
    return Field(ge=low, le=high, description=description)


class SamplingSection(Section):
    """The default sampling of requests; unset = the model file's value."""

    temperature: Annotated[
        float | None, _ranged("temperature", "Randomness; 0 = always the likeliest token.")
    ] = None
    top_p: Annotated[
        float | None, _ranged("top_p", "Keep the likeliest tokens up to this probability; 1 = off.")
    ] = None
    top_k: Annotated[int | None, _ranged("top_k", "Keep the K likeliest tokens; 0 = all.")] = None
    min_p: Annotated[
        float | None, _ranged("min_p", "Drop tokens below this share of the likeliest; 0 = off.")
    ] = None
    min_keep: Annotated[
        int | None, _ranged("min_keep", "Minimum tokens that top_p and min_p keep.")
    ] = None
    typical_p: Annotated[
        float | None,
        _ranged("typical_p", "Keep the most typical tokens up to this probability; 1 = off."),
    ] = None
    top_n_sigma: Annotated[
        float | None,
        _ranged("top_n_sigma", "Drop tokens this many deviations below the best logit; 0 = off."),
    ] = None
    xtc_probability: Annotated[
        float | None,
        _ranged("xtc_probability", "How often XTC drops the likeliest tokens; 0 = off."),
    ] = None
    xtc_threshold: Annotated[
        float | None,
        _ranged(
            "xtc_threshold", "XTC drops tokens above this probability, except one; > 0.5 = off."
        ),
    ] = None
    dynatemp_range: Annotated[
        float | None,
        _ranged("dynatemp_range", "Range in which the entropy moves the temperature; 0 = off."),
    ] = None
    dynatemp_exponent: Annotated[
        float | None, _ranged("dynatemp_exponent", "Dynamic temperature: the power of the entropy.")
    ] = None
    penalty_repeat: Annotated[
        float | None, _ranged("penalty_repeat", "Repetition penalty; 1 = off.")
    ] = None
    penalty_freq: Annotated[
        float | None, _ranged("penalty_freq", "Frequency penalty; 0 = off.")
    ] = None
    penalty_present: Annotated[
        float | None, _ranged("penalty_present", "Presence penalty; 0 = off.")
    ] = None
    penalty_last_n: Annotated[
        int | None, _ranged("penalty_last_n", "Last tokens that penalties count; -1 = the context.")
    ] = None
    dry_multiplier: Annotated[
        float | None,
        _ranged("dry_multiplier", "Strength of DRY, against repeated phrases; 0 = off."),
    ] = None
    dry_base: Annotated[
        float | None, _ranged("dry_base", "Growth of DRY with each repeated token.")
    ] = None
    dry_allowed_length: Annotated[
        int | None, _ranged("dry_allowed_length", "Repeated tokens that DRY allows.")
    ] = None
    dry_penalty_last_n: Annotated[
        int | None, _ranged("dry_penalty_last_n", "Last tokens that DRY checks; -1 = the context.")
    ] = None
    dry_sequence_breakers: Annotated[
        list[str] | None, Field(description="Texts that interrupt a repetition for DRY.")
    ] = None
    mirostat: Annotated[
        int | None,
        _ranged("mirostat", "Mirostat 1 or 2, instead of the other samplers; 0 = off."),
    ] = None
    mirostat_tau: Annotated[
        float | None, _ranged("mirostat_tau", "Mirostat: the target surprise.")
    ] = None
    mirostat_eta: Annotated[
        float | None, _ranged("mirostat_eta", "Mirostat: how fast it learns.")
    ] = None
    samplers: Annotated[
        list[str] | None, Field(description="The samplers that are applied, in order.")
    ] = None
    seed: Annotated[int | None, _ranged("seed", "Random seed; unset = a new one each time.")] = None
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
